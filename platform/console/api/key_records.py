"""A key as the control API takes and returns it. The words are those of the apply file."""

from dataclasses import replace
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.errors import Invalid
from accounts.limits import MOST_CALLS, Limits
from accounts.models import Key, Member, Organization, Scope
from accounts.queries import members_of
from accounts.services.keys import KeyTerms
from console.api.fields import AmountField, BodySerializer, MomentField
from relay.models import Model

__all__ = [
    "KeyChangeSerializer",
    "KeyCreatedSerializer",
    "KeySerializer",
    "NewKeySerializer",
    "changed_terms",
]


class LimitsSerializer(BodySerializer):
    """Null is no limit of its own."""

    budget = AmountField(
        required=False, allow_null=True, help_text="For life, in the organization's currency."
    )
    rpm = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=MOST_CALLS)
    concurrency = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=MOST_CALLS)


class KeyChangeSerializer(BodySerializer):
    """What can be changed of a key; what is left out stays as it is."""

    name = serializers.CharField(required=False, min_length=1, max_length=100)
    member = serializers.EmailField(required=False, allow_null=True, help_text="E-mail address of a member.")
    models = serializers.ListField(
        child=serializers.CharField(min_length=1, max_length=200),
        required=False,
        allow_null=True,
        min_length=1,
    )
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices), required=False, min_length=1)
    limits = LimitsSerializer(required=False)
    expires_at = MomentField(required=False, allow_null=True)


class NewKeySerializer(KeyChangeSerializer):
    """A key to be made."""

    name = serializers.CharField(min_length=1, max_length=100)


class KeySerializer(serializers.Serializer):
    """A key as it is. Takes `spent` (key id -> nano-units) in its context."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="What its clear text begins with.")
    organization = serializers.CharField(source="organization.name")
    member = serializers.SerializerMethodField()
    models = serializers.ListField(
        child=serializers.CharField(),
        source="allowed_models",
        allow_null=True,
        help_text="Null is all on offer.",
    )
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices))
    limits = serializers.SerializerMethodField()
    spent = serializers.SerializerMethodField(help_text="For life, in `currency`.")
    currency = serializers.CharField(source="organization.currency")
    created_at = MomentField()
    expires_at = MomentField(allow_null=True)
    revoked_at = MomentField(allow_null=True)

    @extend_schema_field(serializers.EmailField(allow_null=True))
    def get_member(self, key: Key) -> str | None:
        return key.member.user.email if key.member is not None else None

    @extend_schema_field(LimitsSerializer)
    def get_limits(self, key: Key) -> dict[str, Any]:
        limits = {"budget": key.budget_nano, "rpm": key.rpm, "concurrency": key.concurrency}
        return LimitsSerializer(limits).data

    @extend_schema_field(AmountField)
    def get_spent(self, key: Key) -> str:
        return AmountField().to_representation(self.context["spent"].get(key.pk, 0))


class KeyCreatedSerializer(KeySerializer):
    """A key just made, with its clear text: the only time that it is shown. Takes `value` in its context."""

    value = serializers.SerializerMethodField("clear_text", help_text="The clear text. Shown this once.")

    def clear_text(self, _key: Key) -> str:
        return str(self.context["value"])


def changed_terms(terms: KeyTerms, given: dict[str, Any], organization: Organization) -> KeyTerms:
    """The terms with what was given put in.

    Raises Invalid for a member that the organization does not have, and for a model that there is not.
    """
    changes: dict[str, Any] = {}
    if "member" in given:
        changes["member"] = _member(given["member"], organization)
    if "models" in given:
        changes["allowed_models"] = _models(given["models"], terms.allowed_models or ())
    if "scopes" in given:
        changes["scopes"] = tuple(dict.fromkeys(given["scopes"]))
    if "expires_at" in given:
        changes["expires_at"] = given["expires_at"]
    if limits := given.get("limits"):
        changes["limits"] = Limits(
            budget_nano=limits.get("budget", terms.limits.budget_nano),
            rpm=limits.get("rpm", terms.limits.rpm),
            concurrency=limits.get("concurrency", terms.limits.concurrency),
        )
    return replace(terms, **changes)


def _member(email: str | None, organization: Organization) -> Member | None:
    if email is None:
        return None
    member: Member | None = members_of(organization).filter(user__email=email.lower()).first()
    if member is None:
        raise Invalid("member", "There is no member with this e-mail address.")
    return member


def _models(names: list[str] | None, had: tuple[str, ...]) -> tuple[str, ...] | None:
    """These names, each once. One that the key `had` may stay though its model has gone."""
    if names is None:
        return None
    known = {*had, *Model.objects.filter(name__in=names).values_list("name", flat=True)}
    for name in names:
        if name not in known:
            raise Invalid("models", f"There is no model named {name}.")
    return tuple(dict.fromkeys(names))
