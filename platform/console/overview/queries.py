"""The figures of the overview: the last 24 hours of the calls in sight, read in one scan.

Raw records of one day are enough for this page; longer trends belong to roll-ups.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from billing.models import CallStatus
from console.gate import Sight

__all__ = ["ERROR_STATUSES", "Figures", "Overview", "read_overview"]

HOURS = 24
TOP_MODELS = 8
# What counts as an error here: everything that did not end well, except a client that left by itself.
ERROR_STATUSES = tuple(
    status for status in CallStatus.values if status not in (CallStatus.OK, CallStatus.CLIENT_GONE)
)

_SCAN = """
    SELECT GROUPING(bucket), GROUPING(model), bucket, model, count(*), count(*) FILTER (WHERE is_error),
           coalesce(sum(input), 0), coalesce(sum(cached), 0), coalesce(sum(output), 0), coalesce(sum(amount), 0),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY ttft_ms), percentile_cont(0.95) WITHIN GROUP (ORDER BY ttft_ms)
    FROM (
        SELECT floor(extract(epoch FROM created_at - %(start)s) / 3600)::int AS bucket, model, ttft_ms,
               status = ANY(%(errors)s) AS is_error, amount_nano AS amount, output_tokens AS output,
               cached_input_tokens AS cached,
               uncached_input_tokens + cached_input_tokens + cache_write_5m_tokens + cache_write_30m_tokens
                   + cache_write_1h_tokens AS input
        FROM billing_usagerecord
        WHERE organization_id = %(organization)s AND created_at >= %(start)s AND created_at < %(end)s
              AND (%(member)s::bigint IS NULL OR member_id = %(member)s)
    ) AS day
    GROUP BY GROUPING SETS ((bucket), (model), ())
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums and medians over some calls. TTFT is None where no call had a token."""

    calls: int = 0
    errors: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    amount_nano: int = 0
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cache_hit_ratio(self) -> float | None:
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    @property
    def error_share(self) -> float | None:
        return self.errors / self.calls if self.calls else None


@dataclass(frozen=True, slots=True)
class Overview:
    """The day's figures: in all, for each hour (oldest first) and for the models with the most calls."""

    start: datetime
    end: datetime
    total: Figures = Figures()
    hours: list[Figures] = field(default_factory=list)
    models: list[tuple[str, Figures]] = field(default_factory=list)

    @property
    def middle(self) -> datetime:
        return self.start + (self.end - self.start) / 2


def read_overview(sight: Sight, now: datetime) -> Overview:
    """The 24 hours up to `now`, in hours of the clock: the last one is still running."""
    end = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    start = end - timedelta(hours=HOURS)
    values: dict[str, Any] = {
        "start": start,
        "end": end,
        "errors": list(ERROR_STATUSES),
        "organization": sight.organization_id,
        "member": sight.member_id,
    }
    total, hours, models = Figures(), [Figures()] * HOURS, []
    with connection.cursor() as cursor:
        cursor.execute(_SCAN, values)
        for no_bucket, no_model, bucket, model, *sums in cursor.fetchall():
            figures = _figures(sums)
            if not no_bucket:
                hours[bucket] = figures
            elif not no_model:
                models.append((model, figures))
            else:
                total = figures
    models.sort(key=lambda pair: (-pair[1].calls, pair[0]))
    return Overview(start, end, total, hours, models[:TOP_MODELS])


def _figures(sums: list[Any]) -> Figures:
    calls, errors, tokens_in, cached, tokens_out, amount, p50, p95 = sums
    return Figures(calls, errors, int(tokens_in), int(cached), int(tokens_out), int(amount), p50, p95)
