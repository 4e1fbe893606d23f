"""How a list of calls is searched: newest first along one index, over at most `LOOK_AT` calls a page.

A *lane* is what one index gives in the order of the list: the calls of a key, of a model, those that failed. Whatever
else a reader asks for is looked at call by call along the lane. Nothing bounds how many calls have to be looked at for
something rare, so a page has a bound of its own: where it is reached, the page ends there with what was found, which
may be nothing, and its cursor goes on from that very place. So no page costs more than another, whatever is asked for.

Of the lanes that the filters allow, the one is taken whose next calls reach back the furthest: it leaves out the most.
A lane that comes to its end within the bound answers the question for good.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from billing.models import SLOW_MS, SLOW_START_MS, CallStatus, UsageRecord
from console.calls.filters import CallFilters
from console.gate import Sight
from console.plans import count_rows_not_pages

__all__ = ["LOOK_AT", "Found", "Place", "Wanted", "in_sight", "search"]

# Measured with 1,000,000 calls: a page takes 3 ms of the database with it (median of 529 filters and pairs), and the
# dearest one stays below 50 ms even on a machine with four times the work that it has cores for.
LOOK_AT = 5_000
# A name that so many keys have is looked for call by call: each of them would be a lane of its own.
_MAX_PARTS = 8

# The sort key of the list: a call's moment and id.
Place = tuple[datetime, uuid.UUID]
# (organization, id) of what a name stands for: the indexes begin with the organization.
Ids = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Lane:
    """Calls that one index gives in the order of the list; several parts are as many walks.

    `serves` names the condition that all of its calls fulfil and none outside of it.
    """

    parts: tuple[Q, ...]
    serves: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters, and the keys and members behind the names in them. None: not narrowed by it."""

    filters: CallFilters
    keys: Ids | None = None
    members: Ids | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The calls of a page, and the place from which the next one goes on: None where the list ends."""

    calls: list[UsageRecord]
    end: Place | None


def search(
    sight: Sight, wanted: Wanted, *, after: Place | None, size: int, only: Iterable[str] = ()
) -> Found:
    """The newest `size` calls in sight that are wanted, from `after` on, as far as one page looks."""
    if wanted.keys == () or wanted.members == ():
        return Found([], None)
    count_rows_not_pages()
    conditions = _conditions(sight, wanted)
    lane, floor = _choose(_lanes(sight, wanted), frozenset(conditions), wanted.filters, after)
    found: list[UsageRecord] = []
    for part in lane.parts:
        matching = in_sight(sight).filter(part, *conditions.values())
        matching = _in_time(matching, wanted.filters, after)
        if floor is not None:
            matching = matching.filter(pk__gte=floor, created_at__gte=floor[0])
        found += (matching.only(*only) if only else matching)[: size + 1]
    if len(lane.parts) > 1:
        found.sort(key=_place_of, reverse=True)
    if len(found) > size:
        return Found(found[:size], _place_of(found[size - 1]))
    return Found(found, floor)


def in_sight(sight: Sight) -> QuerySet[UsageRecord]:
    calls = UsageRecord.objects.all()
    if sight.organization_id is not None:
        calls = calls.filter(organization_id=sight.organization_id)
    if sight.member_id is not None:
        calls = calls.filter(member_id=sight.member_id)
    return calls


def _in_time(
    calls: QuerySet[UsageRecord], filters: CallFilters, after: Place | None
) -> QuerySet[UsageRecord]:
    """The calls of the time asked for, from `after` on, in the order of the list."""
    if filters.start is not None:
        calls = calls.filter(created_at__gte=filters.start)
    if filters.end is not None:
        calls = calls.filter(created_at__lt=filters.end)
    if after is not None:
        # Partitions are left out by the moment alone, not by the pair.
        calls = calls.filter(pk__lt=after, created_at__lte=after[0])
    return calls.order_by("-created_at", "-id")


def _conditions(sight: Sight, wanted: Wanted) -> dict[str, Q]:
    """What a call must fulfil beside its organization and its time, by name."""
    filters = wanted.filters
    conditions = {
        "sight": Q(member_id=sight.member_id) if sight.member_id is not None else None,
        "model": Q(model=filters.model) if filters.model else None,
        "status": Q(status__in=filters.statuses) if filters.statuses else None,
        "error_kind": Q(error_kind=filters.error_kind) & ~Q(error_kind="") if filters.error_kind else None,
        "task_id": Q(task_id=filters.task_id) & ~Q(task_id="") if filters.task_id else None,
        "ttft_ms": Q(ttft_ms__gte=filters.min_ttft_ms) if filters.min_ttft_ms is not None else None,
        "total_ms": Q(total_ms__gte=filters.min_total_ms) if filters.min_total_ms is not None else None,
        "stream": Q(stream=filters.stream) if filters.stream is not None else None,
        "key": Q(key_id__in=_ids(wanted.keys)) if wanted.keys is not None else None,
        "member": Q(member_id__in=_ids(wanted.members)) if wanted.members is not None else None,
    }
    return {name: condition for name, condition in conditions.items() if condition is not None}


def _ids(pairs: Ids) -> list[int]:
    return [pk for _organization, pk in pairs]


def _lanes(sight: Sight, wanted: Wanted) -> list[Lane]:
    """The lanes that hold everything that is wanted and in sight: all calls first, then those of other indexes."""
    organization = sight.organization_id
    if organization is None:
        lanes = [Lane((Q(),))]
    else:
        mine = Q(organization_id=organization)
        lanes = [
            Lane((mine,)),
            *(Lane((mine & part,), serves) for part, serves in _indexed(sight, wanted.filters)),
        ]
    for name, field, ids in (("key", "key_id", wanted.keys), ("member", "member_id", wanted.members)):
        if ids is not None and len(ids) <= _MAX_PARTS:
            parts = tuple(Q(**{"organization_id": org, field: pk}) for org, pk in ids)
            lanes.append(Lane(parts, name))
    return lanes


def _indexed(sight: Sight, filters: CallFilters) -> Iterable[tuple[Q, str | None]]:
    """What an index of an organization's calls begins with (migration 0004 of billing), and the condition it serves."""
    if sight.member_id is not None:
        yield Q(member_id=sight.member_id), "sight"
    if filters.model:
        yield Q(model=filters.model), "model"
    if filters.task_id:
        yield Q(task_id=filters.task_id) & ~Q(task_id=""), "task_id"
    if filters.error_kind:
        yield Q(error_kind=filters.error_kind) & ~Q(error_kind=""), "error_kind"
    if filters.statuses and CallStatus.OK not in filters.statuses:
        yield ~Q(status=CallStatus.OK), None
    if filters.min_ttft_ms is not None and filters.min_ttft_ms >= SLOW_START_MS:
        yield Q(ttft_ms__gte=SLOW_START_MS), None
    if filters.min_total_ms is not None and filters.min_total_ms >= SLOW_MS:
        yield Q(total_ms__gte=SLOW_MS), None


def _choose(
    lanes: list[Lane], conditions: frozenset[str], filters: CallFilters, after: Place | None
) -> tuple[Lane, Place | None]:
    """The lane to look along, and how far: None is to its end.

    A lane whose every call is wanted needs no bound, for the page is full after as many calls as it shows. All calls
    are looked along only where there is no other lane: they reach back less far than any part of them.
    """
    for lane in lanes:
        if conditions == ({lane.serves} if lane.serves else frozenset()):
            return lane, None
    best, best_floor = lanes[0], None
    for lane in lanes[1:] or lanes:
        floor = _floor(lane, filters, after)
        if floor is None:
            return lane, None
        if best_floor is None or floor < best_floor:
            best, best_floor = lane, floor
    return best, best_floor


def _floor(lane: Lane, filters: CallFilters, after: Place | None) -> Place | None:
    """The last of the next `LOOK_AT` calls along a lane, or None if it has fewer."""
    share = LOOK_AT // len(lane.parts)
    floors: list[Place] = []
    for part in lane.parts:
        calls = _in_time(UsageRecord.objects.filter(part), filters, after)
        floors += calls.values_list("created_at", "id")[share - 1 : share]
    return max(floors, default=None)


def _place_of(call: Any) -> Place:
    return call.created_at, call.id
