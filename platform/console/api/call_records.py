"""The call record as the control API returns it (design, section 6)."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.models import CallStatus, UsageRecord, UsageSource
from console.api.fields import AmountField, MomentField
from console.calls.attempts import shown_attempts
from console.calls.queries import Names

__all__ = ["CallSerializer"]

_OPERATORS_ONLY = ("upstream", "upstream_request_id", "cost")


class TimingSerializer(serializers.Serializer):
    """Milliseconds from the call's acceptance. The stages sum to the total; zero ones may be missing."""

    total_ms = serializers.FloatField()
    ttft_ms = serializers.FloatField(allow_null=True, help_text="To the first token.")
    ttfb_ms = serializers.FloatField(allow_null=True, help_text="To the first body byte.")
    stages = serializers.DictField(child=serializers.FloatField())


class CallSerializer(serializers.Serializer):
    """One call. Takes `names` (console.calls.queries.Names) and `operator` in its context."""

    id = serializers.UUIDField()
    task_id = serializers.CharField(allow_blank=True)
    created_at = MomentField()
    organization = serializers.SerializerMethodField(help_text="Name of the organization.")
    member = serializers.SerializerMethodField(help_text="E-mail address of the key's member.")
    key = serializers.SerializerMethodField(help_text="Name of the key.")
    client = serializers.CharField(allow_blank=True, help_text="Class of the calling program.")
    endpoint = serializers.CharField()
    model = serializers.CharField(allow_blank=True)
    protocol = serializers.CharField()
    upstream = serializers.CharField(allow_blank=True, required=False, help_text="Operators only.")
    upstream_model = serializers.CharField(allow_blank=True)
    answered_model = serializers.CharField(allow_blank=True)
    upstream_request_id = serializers.CharField(allow_blank=True, required=False, help_text="Operators only.")
    service_tier = serializers.CharField(allow_blank=True)
    reasoning_effort = serializers.CharField(allow_blank=True)
    stream = serializers.BooleanField()
    status = serializers.ChoiceField(CallStatus.choices)
    http_status = serializers.IntegerField()
    error_kind = serializers.CharField(allow_blank=True)
    end_reason = serializers.CharField(allow_blank=True)
    attempts = serializers.SerializerMethodField()
    input_tokens = serializers.IntegerField(help_text="All of them.")
    uncached_input_tokens = serializers.IntegerField()
    cached_input_tokens = serializers.IntegerField()
    cache_write_5m_tokens = serializers.IntegerField()
    cache_write_30m_tokens = serializers.IntegerField()
    cache_write_1h_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField(help_text="Part of the output tokens.")
    usage_source = serializers.ChoiceField(UsageSource.choices, allow_blank=True)
    price_version = serializers.IntegerField(allow_null=True)
    amount = AmountField(source="amount_nano")
    currency = serializers.CharField()
    cost = AmountField(
        source="cost_nano", required=False, help_text="What the upstream charges. Operators only."
    )
    timing = serializers.SerializerMethodField()
    cache_hit_ratio = serializers.SerializerMethodField()
    diagnosis = serializers.SerializerMethodField()

    def to_representation(self, instance: UsageRecord) -> dict[str, Any]:
        record = super().to_representation(instance)
        if not self.context["operator"]:
            for name in _OPERATORS_ONLY:
                del record[name]
        return record

    def get_organization(self, call: UsageRecord) -> str:
        return self._names.organizations.get(call.organization_id, "")

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_member(self, call: UsageRecord) -> str | None:
        return self._names.members.get(call.member_id)

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_key(self, call: UsageRecord) -> str | None:
        return self._names.keys.get(call.key_id)

    @extend_schema_field(serializers.ListField(child=serializers.DictField()))
    def get_attempts(self, call: UsageRecord) -> list[dict[str, Any]]:
        return shown_attempts(call.attempts, operator=self.context["operator"])

    @extend_schema_field(TimingSerializer)
    def get_timing(self, call: UsageRecord) -> dict[str, Any]:
        return {
            "total_ms": call.total_ms,
            "ttft_ms": call.ttft_ms,
            "ttfb_ms": call.ttfb_ms,
            "stages": call.stages,
        }

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_cache_hit_ratio(self, call: UsageRecord) -> float | None:
        return round(call.cached_input_tokens / call.input_tokens, 6) if call.input_tokens else None

    @extend_schema_field({"type": ["object", "null"]})
    def get_diagnosis(self, _call: UsageRecord) -> dict[str, Any] | None:
        """Null until the relay gives verdicts."""
        return None

    @property
    def _names(self) -> Names:
        names: Names = self.context["names"]
        return names
