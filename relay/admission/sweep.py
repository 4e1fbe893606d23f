"""Holds that nobody renews any more: taken off the counters when their lease has run out. Synchronous, for
Celery.

A hold outlives its lease when its process was killed, was cut off from the store, or never heard that the
hold was taken. The sweeper gives the money back at every level and keeps a note of the call for two days, so
that its settling, if it still comes, counts what was spent, once. Two sweepers at once do no harm: each step
is one script call.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import redis

from relay.admission.scripts import REMEMBER_MS, SWEEP, hold_keys
from relay.admission.wire import StoreUnavailable

__all__ = ["SweepReport", "sweep_holds"]

# Holds per script call, for the reasons given at MOST_OPERATIONS in relay.admission.batch.
MOST_HOLDS = 128
# Script calls per organization and sweep; a killed process leaves at most a few hundred calls of one
# organization.
MOST_ROUNDS = 8
_ORGANIZATIONS_AT_ONCE = 100


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
