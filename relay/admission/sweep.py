"""Holds that nobody renews any more: taken off the counters when their lease has run out. Synchronous, for
Celery.

A hold outlives its lease when its process was killed, was cut off from the store, or never heard that the
hold was taken. Where the call is in the books already, only its settling was lost: the store was away, and the
process that was to repeat it was killed. The sweeper settles it. Of all others it gives the money back at every
level and keeps a note of the call for two days, so that its settling, if it still comes, counts what was spent,
once; until then it looks into the books for it again and again. Two sweepers at once do no harm: each step is
one script call.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import redis

from relay.admission.scripts import BOOK, REMEMBER_MS, SWEEP, hold_keys
from relay.admission.wire import StoreUnavailable

__all__ = ["Amounts", "SweepReport", "settle_recorded", "sweep_holds"]

Amounts = Callable[[Collection[str]], Mapping[str, int]]
"""What those of these calls cost that are in the books, by call id."""

# Holds per script call, for the reasons given at MOST_OPERATIONS in relay.admission.batch.
MOST_HOLDS = 128
# Script calls per organization and sweep; a killed process leaves at most a few hundred calls of one
# organization.
MOST_ROUNDS = 8
_ORGANIZATIONS_AT_ONCE = 100


# Below it a hold is under its lease, above it it was swept or counted (`check_lease`: a day at most).
_LEASES_MS = 24 * 3600 * 1000
_MOST_LOOKED_UP = 1_000


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did. `unfinished` are the organizations with more expired holds than one sweep takes."""

    swept: int
    forgotten: int
    unfinished: tuple[int, ...]


def sweep_holds(
    client: redis.Redis,
    organization_ids: Iterable[int],
    *,
    now_ms: int | None = None,
    most_holds: int = MOST_HOLDS,
) -> SweepReport:
    """Sweep these organizations: at most MOST_ROUNDS times most_holds (from 1 to 128) holds of each.

    `now_ms` replaces the store's clock, for tests. Idempotent. Raises StoreUnavailable; what was swept until
    then stays swept.
    """
    if not 1 <= most_holds <= MOST_HOLDS:
        raise ValueError(f"most_holds must be from 1 to {MOST_HOLDS}")
    arguments = ("" if now_ms is None else now_ms, most_holds, REMEMBER_MS)
    waiting, swept, forgotten = list(organization_ids), 0, 0
    try:
        client.script_load(SWEEP.text)
        for _ in range(MOST_ROUNDS):
            unfinished: list[int] = []
            for first in range(0, len(waiting), _ORGANIZATIONS_AT_ONCE):
                some = waiting[first : first + _ORGANIZATIONS_AT_ONCE]
                with client.pipeline(transaction=False) as pipeline:
                    for organization_id in some:
                        pipeline.evalsha(SWEEP.sha, 3, *hold_keys(organization_id), *arguments)
                    answers = pipeline.execute()
                for organization_id, (taken, dropped, has_more) in zip(some, answers, strict=True):
                    swept, forgotten = swept + taken, forgotten + dropped
                    if has_more:
                        unfinished.append(organization_id)
            waiting = unfinished
            if not waiting:
                break
    except redis.RedisError as exc:
        raise StoreUnavailable(f"the sweep was not finished: {exc}") from exc
    return SweepReport(swept, forgotten, tuple(waiting))


def settle_recorded(
    client: redis.Redis, organization_ids: Iterable[int], amounts: Amounts, *, now_ms: int | None = None
) -> int:
    """Settle calls whose lease has run out, or whose hold was swept, and that are in the books; how many.

    To be called before `sweep_holds`, so that what was spent is never free in between. Looks at 1,000 calls of an
    organization at most. Idempotent. Raises StoreUnavailable, and what `amounts` raises.
    """
    settled = 0
    waiting = list(organization_ids)
    try:
        client.script_load(BOOK.text)
        seconds, micros = client.time()
        now = now_ms if now_ms is not None else seconds * 1000 + micros // 1000
        for first in range(0, len(waiting), _ORGANIZATIONS_AT_ONCE):
            some = waiting[first : first + _ORGANIZATIONS_AT_ONCE]
            with client.pipeline(transaction=False) as pipeline:
                for organization_id in some:
                    due = hold_keys(organization_id)[2]
                    pipeline.zrangebyscore(due, "-inf", now, start=0, num=_MOST_LOOKED_UP)
                    pipeline.zrangebyscore(due, now + _LEASES_MS, "+inf", start=0, num=_MOST_LOOKED_UP)
                answers = pipeline.execute()
            for organization_id, expired, swept in zip(some, answers[::2], answers[1::2], strict=True):
                if expired or swept:
                    found = amounts([name.decode() for name in (*expired, *swept)])
                    settled += _settle(client, organization_id, found, now_ms)
    except redis.RedisError as exc:
        raise StoreUnavailable(f"the sweep was not finished: {exc}") from exc
    return settled


def _settle(client: redis.Redis, organization_id: int, amounts: Mapping[str, int], now_ms: int | None) -> int:
    settled = 0
    known = list(amounts.items())
    for first in range(0, len(known), MOST_HOLDS):
        some = known[first : first + MOST_HOLDS]
        arguments: list[str | int] = ["" if now_ms is None else now_ms, len(some), 0]
        arguments += [call_id for call_id, _ in some]
        for _, amount_nano in some:
            arguments += ("s", amount_nano)
        answers = client.evalsha(BOOK.sha, 3, *hold_keys(organization_id), *arguments)
        settled += sum(answer == 1 for answer in answers)
    return settled
