"""Pure. Usage summed by the hour, for pages about more calls than a page should read.

`UsageHour` has a row for each organization, hour (UTC), model and class of TTFT, under `member_id` 0, and one for each
member, hour and model, without classes: with them every second call would be a row of its own. `billing.ingest` keeps
it in the statement that writes the records, so that the sums are always those of the records.

A class of TTFT is a tenth of a power of ten: from 10^(c/10) ms to 10^((c+1)/10), a width of 26 %. Percentiles are read
between the bounds of a class, which puts them within some 5 % of the exact ones.
"""

from collections.abc import Mapping

__all__ = ["COLUMNS", "EVERYBODY", "NOT_KEPT", "NO_TOKEN", "roll_up", "ttft_percentile"]

EVERYBODY = 0
# The classes of calls without a token, and of calls of which it is not kept.
NO_TOKEN, NOT_KEPT = -1, -2
_STEPS = 10
_SUMS = ("calls", "errors", "input_tokens", "cached_tokens", "output_tokens", "amount_nano")
_KEY = "organization_id, hour, member_id, model, ttft_class"
# What a relation of records must have.
COLUMNS = (
    "organization_id",
    "created_at",
    "member_id",
    "model",
    "status",
    "ttft_ms",
    "uncached_input_tokens",
    "cached_input_tokens",
    "cache_write_5m_tokens",
    "cache_write_30m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "amount_nano",
)
# No call has so many tokens; an absurd report must not make a sum that the column cannot hold.
_MOST_TOKENS = 10**12


def roll_up(source: str) -> str:
    """SQL that adds the records of `source`, a relation with at least `COLUMNS`, to the hours."""
    return f"""
        INSERT INTO billing_usagehour AS h ({_KEY}, {", ".join(_SUMS)})
        SELECT organization_id, date_trunc('hour', created_at, 'UTC'), seen_by, model,
               CASE WHEN seen_by <> {EVERYBODY} THEN {NOT_KEPT} WHEN ttft_ms IS NULL THEN {NO_TOKEN}
                    ELSE floor({_STEPS} * log(GREATEST(ttft_ms, 1)))::smallint END,
               count(*), count(*) FILTER (WHERE status NOT IN ('ok', 'client_gone')),
               sum({_some("uncached_input")} + {_some("cached_input")} + {_some("cache_write_5m")}
                   + {_some("cache_write_30m")} + {_some("cache_write_1h")}),
               sum({_some("cached_input")}), sum({_some("output")}), sum(amount_nano)
        FROM {source} CROSS JOIN LATERAL (VALUES ({EVERYBODY}::bigint), (member_id)) AS seen(seen_by)
        WHERE seen_by IS NOT NULL
        GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT ({_KEY}) DO UPDATE
            SET {", ".join(f"{name} = h.{name} + excluded.{name}" for name in _SUMS)}
    """


def _some(tokens: str) -> str:
    return f"LEAST({tokens}_tokens, {_MOST_TOKENS})"


def ttft_percentile(classes: Mapping[int, int], share: float) -> float | None:
    """The TTFT in ms below which `share` of the calls with a token lie. `classes`: class -> calls.

    >>> round(ttft_percentile({29: 10}, 0.5))
    893
    """
    counts = {number: calls for number, calls in classes.items() if number >= 0 and calls > 0}
    total = sum(counts.values())
    if not total:
        return None
    below, wanted = 0.0, share * total
    for number in sorted(counts):
        calls = counts[number]
        if below + calls >= wanted:
            return float(10 ** ((number + (wanted - below) / calls) / _STEPS))
        below += calls
    return float(10 ** ((max(counts) + 1) / _STEPS))
