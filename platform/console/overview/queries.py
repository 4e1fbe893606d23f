"""The figures of the overview: the last 24 hours of the calls in sight.

A day of up to `MOST_READ` calls is read call by call and exact in everything. Of a longer one the sums come from the
hours that ingestion keeps (billing.roll_ups), still exact, and medians from its classes of TTFT; one member's medians,
of which no classes are kept, are those of their newest calls.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from billing.models import CallStatus
from billing.roll_ups import EVERYBODY, ttft_percentile
from console.gate import Sight
from console.plans import count_rows_not_pages

__all__ = ["ERROR_STATUSES", "Figures", "Overview", "read_overview"]

HOURS = 24
# Chosen: so many take some 10 ms of the database, and few days of few organizations hold more.
MOST_READ = 5_000
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
              {of_member}
        ORDER BY created_at DESC, id DESC LIMIT %(most)s
    ) AS day
    GROUP BY GROUPING SETS ((bucket), (model), ())
"""
# The condition on a member stands there only where it is needed: else no index of theirs is used.
_OF_MEMBER = "AND member_id = %(member)s"
_HOURS = """
    SELECT floor(extract(epoch FROM hour - %(start)s) / 3600)::int, model, ttft_class, calls, errors, input_tokens,
           cached_tokens, output_tokens, amount_nano
    FROM billing_usagehour
    WHERE organization_id = %(organization)s AND hour >= %(start)s AND hour < %(end)s AND member_id = %(seen_by)s
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
        "seen_by": EVERYBODY if sight.member_id is None else sight.member_id,
        "most": MOST_READ,
    }
    count_rows_not_pages()
    with connection.cursor() as cursor:
        cursor.execute(_SCAN.format(of_member="" if sight.member_id is None else _OF_MEMBER), values)
        total, hours, models = _read_calls(cursor.fetchall())
        if total.calls == MOST_READ:
            cursor.execute(_HOURS, values)
            rows = cursor.fetchall()
            total = _roll_up(rows, total)
            hours = [_roll_up((row for row in rows if row[0] == n), hours[n]) for n in range(HOURS)]
            names = {row[1] for row in rows}
            models = {
                name: _roll_up((row for row in rows if row[1] == name), models.get(name, Figures()))
                for name in names
            }
    most = sorted(models.items(), key=lambda pair: (-pair[1].calls, pair[0]))
    return Overview(start, end, total, hours, most[:TOP_MODELS])


def _read_calls(rows: Iterable[Any]) -> tuple[Figures, list[Figures], dict[str, Figures]]:
    """In all, for each hour, for each model."""
    total, hours, models = Figures(), [Figures()] * HOURS, {}
    for no_bucket, no_model, bucket, model, *sums in rows:
        figures = _figures(sums)
        if not no_bucket:
            hours[bucket] = figures
        elif not no_model:
            models[model] = figures
        else:
            total = figures
    return total, hours, models


def _roll_up(rows: Iterable[Any], newest: Figures) -> Figures:
    """The sums over rows of hours. Medians are those of `newest` where no classes of TTFT are kept."""
    classes: Counter[int] = Counter()
    sums = [0] * 6
    for _bucket, _model, ttft_class, *figures in rows:
        classes[ttft_class] += figures[0]
        sums = [total + figure for total, figure in zip(sums, figures, strict=True)]
    found = _figures([*sums, newest.ttft_p50_ms, newest.ttft_p95_ms])
    if any(ttft_class >= 0 for ttft_class in classes):
        found = replace(
            found, ttft_p50_ms=ttft_percentile(classes, 0.5), ttft_p95_ms=ttft_percentile(classes, 0.95)
        )
    return found


def _figures(sums: list[Any]) -> Figures:
    calls, errors, tokens_in, cached, tokens_out, amount, p50, p95 = sums
    return Figures(calls, errors, int(tokens_in), int(cached), int(tokens_out), int(amount), p50, p95)
