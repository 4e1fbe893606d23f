"""Tables of what is on offer and where it comes from. Read by the snapshot loader and the console, not on the hot path.

`Change` is the log that keeps the snapshot of every relay process fresh: triggers write one row for every changed row
that the snapshot holds, in the same transaction, and notify the channel `yizhan_changes` (see the migration).
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

__all__ = ["Change", "Kind", "Model", "Protocol", "Route", "Upstream"]


class Kind(models.TextChoices):
    CHAT = "chat", _("Chat")
    EMBEDDING = "embedding", _("Embedding")
    RERANK = "rerank", _("Rerank")
    IMAGE = "image", _("Image")
    AUDIO = "audio", _("Audio")
    MODERATION = "moderation", _("Moderation")


class Protocol(models.TextChoices):
    OPENAI = "openai", "OpenAI"
    OPENAI_RESPONSES = "openai-responses", "OpenAI Responses"
    ANTHROPIC = "anthropic", "Anthropic"
    GEMINI = "gemini", "Gemini"


class Model(models.Model):
    """What clients ask for. Its price lies in `billing.Price` under the same name."""

    name = models.CharField(max_length=200, unique=True)
    aliases = ArrayField(
        models.CharField(max_length=200),
        default=list,
        blank=True,
        help_text="other names; one * allowed in each",
    )
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.CHAT)
    context_tokens = models.PositiveIntegerField(default=131_072)
    hold_output_tokens = models.PositiveIntegerField(
        default=8_192, help_text="ceiling held when a request names none"
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(kind__in=Kind.values), name="model_kind_is_known")]

    def __str__(self) -> str:
        return self.name


class Upstream(models.Model):
    """One account at one provider's address. The credential is sealed (`relay.state.sealing`)."""

    name = models.CharField(max_length=100, unique=True)
    protocol = models.CharField(max_length=24, choices=Protocol.choices)
    base_url = models.CharField(max_length=500)
    credential_sealed = models.BinaryField()
    enabled = models.BooleanField(default=True)
    proxy = models.CharField(max_length=500, null=True, blank=True)  # noqa: DJ001 - None means direct, as in the apply file
    cost_multiplier = models.DecimalField(max_digits=12, decimal_places=6, default=1)
    limits = models.JSONField(default=dict, blank=True)
    timeouts = models.JSONField(
        default=dict, blank=True, help_text="connect_s, first_token_s, idle_s, total_s"
    )
    extra_headers = models.JSONField(default=dict, blank=True)
    allow_private = models.BooleanField(default=False)
    probe = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(protocol__in=Protocol.values), name="upstream_protocol_is_known"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Route(models.Model):
    """Model -> upstream, with the model's name there."""

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="routes")
    upstream = models.ForeignKey(Upstream, on_delete=models.CASCADE, related_name="routes")
    upstream_model = models.CharField(max_length=200)
    priority = models.PositiveIntegerField(default=0)
    weight = models.PositiveIntegerField(default=1)
    enabled = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model", "upstream", "upstream_model"], name="route_once")
        ]
        ordering = ["priority", "id"]

    def __str__(self) -> str:
        return f"{self.model_id} -> {self.upstream_id} ({self.upstream_model})"


class Change(models.Model):
    """One changed row of the snapshot. `xid` is the writing transaction, so that a reader misses no late commit."""

    kind = models.CharField(max_length=16)
    row_id = models.BigIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.kind} {self.row_id}"
