"""Tables of money: prices, usage records, the ledger.

`UsageRecord` is the one per-call record, on native monthly partitions, inserted only by `billing.ingest`
under the role `relay_ingest`. The ledger is double entry and append-only: each posting's entries sum to zero
(a deferred constraint trigger), and an organization's balance is the sum of its `wallet` entries.
"""

import uuid
from functools import reduce
from operator import and_

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import Organization
from accounts.scope import ScopedManager
from billing.pricing import RATE_CEILING

__all__ = [
    "SLOW_MS",
    "SLOW_START_MS",
    "Account",
    "CallStatus",
    "LedgerEntry",
    "Posting",
    "PostingKind",
    "Price",
    "SpentTotal",
    "UsageHour",
    "UsageRecord",
    "UsageSource",
]


RATE_FIELDS = (
    "input",
    "output",
    "cached_input",
    "cache_write_5m",
    "cache_write_30m",
    "cache_write_1h",
    "read_explicit",
)


def _rate(help_text: str = "") -> models.DecimalField:
    return models.DecimalField(max_digits=24, decimal_places=12, null=True, blank=True, help_text=help_text)


def _in_bounds() -> Q:
    """Every rate that is given lies between 0 and the ceiling: beyond it is a mistyped price."""
    return reduce(and_, (Q(**{f"{name}__range": (0, RATE_CEILING)}) for name in RATE_FIELDS))


class Price(models.Model):
    """One version of a model's price, by the model's name. The newest `valid_from` that has come is in force.
    Versions are never changed.

    Rates are per million tokens in `currency`, unless the name says otherwise. A class without a rate costs
    what `input` (or `output`) costs, never 0. `discount` is the factor that the organization pays of the list
    price.
    """

    model_name = models.CharField(max_length=200)
    valid_from = models.DateTimeField(default=timezone.now)
    currency = models.CharField(max_length=3)
    input = models.DecimalField(max_digits=24, decimal_places=12)
    output = models.DecimalField(max_digits=24, decimal_places=12)
    cached_input = _rate()
    cache_write_5m = _rate()
    cache_write_30m = _rate()
    cache_write_1h = _rate()
    read_explicit = _rate("cached input where the upstream bills explicit caching apart")
    discount = models.DecimalField(max_digits=9, decimal_places=6, default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model_name", "valid_from"], name="price_once_per_moment"),
            models.CheckConstraint(condition=_in_bounds(), name="price_in_bounds"),
            models.CheckConstraint(
                condition=Q(discount__gte=0) & Q(discount__lte=100), name="price_discount_in_bounds"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model_name} v{self.pk}"


class CallStatus(models.TextChoices):
    OK = "ok", _("OK")
    CLIENT_ERROR = "client_error", _("Client error")
    UPSTREAM_ERROR = "upstream_error", _("Upstream error")
    REFUSED = "refused", _("Refused")
    CLIENT_GONE = "client_gone", _("Client gone")
    INTERRUPTED = "interrupted", _("Interrupted")


class UsageSource(models.TextChoices):
    REPORTED = "reported", _("Reported")
    PARTIAL = "partial", _("Partial")
    ESTIMATED = "estimated", _("Estimated")


# From here on a call is in the index of those whose first token, or whose end, came late: what is looked for is rare.
# The indexes themselves are SQL of the migrations, for the table is partitioned.
SLOW_START_MS = 2_000
SLOW_MS = 20_000


class UsageRecord(models.Model):
    """What one call used and cost, where it went and where its time went. Never updated.

    `created_at` is the time inside `id` (UUIDv7, the `X-Call-Id`), so the pair is unique across partitions.
    Token classes are disjoint: input = uncached + cached + the three writes; `reasoning_tokens` is part of
    `output_tokens`.
    """

    pk = models.CompositePrimaryKey("created_at", "id")
    created_at = models.DateTimeField()
    id = models.UUIDField(default=uuid.uuid4)
    organization = models.ForeignKey(
        Organization, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    member_id = models.BigIntegerField(null=True)
    key_id = models.BigIntegerField(null=True)
    task_id = models.CharField(max_length=200, default="")
    client = models.CharField(max_length=64, default="")
    endpoint = models.CharField(max_length=64)
    model = models.CharField(max_length=200)
    protocol = models.CharField(max_length=24)
    upstream_id = models.BigIntegerField(null=True)
    upstream = models.CharField(max_length=100, default="")
    upstream_model = models.CharField(max_length=200, default="")
    answered_model = models.CharField(max_length=200, default="")
    upstream_request_id = models.CharField(max_length=200, default="")
    service_tier = models.CharField(max_length=32, default="")
    reasoning_effort = models.CharField(max_length=32, default="")
    stream = models.BooleanField(default=False)
    status = models.CharField(max_length=16, choices=CallStatus.choices)
    http_status = models.SmallIntegerField()
    error_kind = models.CharField(max_length=48, default="")
    end_reason = models.CharField(max_length=48, default="")
    attempts = models.JSONField(default=list)
    uncached_input_tokens = models.BigIntegerField(default=0)
    cached_input_tokens = models.BigIntegerField(default=0)
    cache_write_5m_tokens = models.BigIntegerField(default=0)
    cache_write_30m_tokens = models.BigIntegerField(default=0)
    cache_write_1h_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    cache_type = models.CharField(max_length=32, default="")
    usage_source = models.CharField(max_length=12, choices=UsageSource.choices, default="")
    usage_flags = ArrayField(models.CharField(max_length=48), default=list)
    price_version = models.BigIntegerField(null=True)
    amount_nano = models.BigIntegerField(default=0)
    currency = models.CharField(max_length=3)
    cost_nano = models.BigIntegerField(
        default=0, help_text="what the upstream charges, in the price's currency"
    )
    total_ms = models.FloatField(default=0)
    ttft_ms = models.FloatField(null=True, help_text="acceptance to the first token sent on")
    ttfb_ms = models.FloatField(null=True, help_text="acceptance to the first body byte sent on")
    stages = models.JSONField(default=dict, help_text="stage -> ms; they sum to total_ms")
    posting_id = models.BigIntegerField(null=True)

    objects = ScopedManager()

    class Meta:
        indexes = [models.Index(fields=["organization", "-created_at", "-id"], name="usage_newest_first")]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def input_tokens(self) -> int:
        """All input tokens, cached and written ones included."""
        return (
            self.uncached_input_tokens
            + self.cached_input_tokens
            + self.cache_write_5m_tokens
            + self.cache_write_30m_tokens
            + self.cache_write_1h_tokens
        )


class PostingKind(models.TextChoices):
    OPENING = "opening", _("Opening credit")
    TOP_UP = "top_up", _("Top-up")
    USAGE = "usage", _("Usage")
    REFUND = "refund", _("Refund")
    ADJUSTMENT = "adjustment", _("Adjustment")


class Account(models.TextChoices):
    WALLET = "wallet", _("Wallet")
    REVENUE = "revenue", _("Revenue")
    RECEIVED = "received", _("Money received")
    EQUITY = "equity", _("Opening balances")


class Posting(models.Model):
    """One balanced set of ledger entries. `reference` makes a posting that may be asked for twice happen
    once.
    """

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="postings")
    kind = models.CharField(max_length=16, choices=PostingKind.choices)
    reference = models.UUIDField(default=uuid.uuid4, unique=True)
    memo = models.CharField(max_length=200, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = ScopedManager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=PostingKind.values), name="posting_kind_is_known"),
            models.UniqueConstraint(
                fields=["organization"], condition=Q(kind="opening"), name="posting_one_opening_credit"
            ),
        ]
        indexes = [models.Index(fields=["organization"], condition=~Q(kind="usage"), name="posting_credits")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class LedgerEntry(models.Model):
    """One side of a posting. Positive on `wallet` is money that the organization may spend."""

    posting = models.ForeignKey(Posting, on_delete=models.PROTECT, related_name="entries")
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    account = models.CharField(max_length=16, choices=Account.choices)
    amount_nano = models.BigIntegerField()
    currency = models.CharField(max_length=3)

    objects = ScopedManager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(account__in=Account.values), name="ledger_account_is_known")
        ]
        indexes = [
            models.Index(fields=["organization", "account"], include=["amount_nano"], name="ledger_balance")
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.amount_nano} {self.currency}"


class SpentTotal(models.Model):
    """What a level has spent for life, kept by ingestion: the source from which lost counters are rebuilt.

    `level` is the limit store's word: "o" for the organization, "k<id>" for a key.
    """

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    level = models.CharField(max_length=32)
    spent_nano = models.BigIntegerField(default=0)
    calls = models.BigIntegerField(default=0)

    objects = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "level"], name="spent_once_per_level")]

    def __str__(self) -> str:
        return f"{self.organization_id}/{self.level}: {self.spent_nano}"


class UsageHour(models.Model):
    """Usage summed by the hour, kept by ingestion (billing.roll_ups): `member_id` 0 is the whole organization."""

    pk = models.CompositePrimaryKey("organization", "hour", "member_id", "model", "ttft_class")
    organization = models.ForeignKey(
        Organization, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", db_index=False
    )
    hour = models.DateTimeField()
    member_id = models.BigIntegerField()
    model = models.CharField(max_length=200)
    ttft_class = models.SmallIntegerField()
    calls = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    amount_nano = models.BigIntegerField(default=0)

    objects = ScopedManager()

    def __str__(self) -> str:
        return f"{self.organization_id}/{self.member_id} {self.hour:%Y-%m-%dT%H}: {self.calls}"
