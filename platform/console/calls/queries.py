"""Reads of the call log. All run inside a scope (accounts.scope).

Lists are paged by key: the next page starts after (created_at, id) of the last row, in the order of the index
`usage_newest_first` (one organization) or `usage_newest_of_site`, so a page costs the same wherever it lies. Nothing
here counts rows or skips them.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from accounts.models import Key, Member, Organization
from billing.models import UsageRecord
from billing.records import created_at_of
from console import cursor
from console.calls.filters import CallFilters
from console.gate import Sight

__all__ = ["CallPage", "Names", "find_call", "find_names", "list_calls", "read_cursor", "visible_keys"]

_CURSOR = "calls"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# `created_at` is the time inside the id; the second on either side only picks the partition.
_AROUND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CallPage:
    """One page of calls, newest first, and the cursor of the next one (None on the last)."""

    calls: list[UsageRecord]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Names:
    """The names behind the ids on some calls, read in one go."""

    organizations: dict[int | None, str]
    members: dict[int | None, str]
    keys: dict[int | None, str]


def list_calls(
    sight: Sight,
    filters: CallFilters,
    *,
    after: tuple[datetime, uuid.UUID] | None = None,
    size: int,
    only: Iterable[str] = (),
) -> CallPage:
    """The newest `size` calls in sight that the filters let through, from `after` on."""
    found = _narrow(_in_sight(sight), filters)
    if after is not None:
        found = found.filter(pk__lt=after)
    if only:
        found = found.only(*only)
    calls = list(found.order_by("-created_at", "-id")[: size + 1])
    if len(calls) <= size:
        return CallPage(calls, None)
    calls.pop()
    return CallPage(calls, _make_cursor(calls[-1]))


def find_call(sight: Sight, call_id: uuid.UUID) -> UsageRecord | None:
    """The call of this id if it is in sight."""
    try:
        moment = created_at_of(str(call_id))
    except (ValueError, OverflowError):
        return None
    around = (moment - _AROUND, moment + _AROUND)
    return _in_sight(sight).filter(created_at__range=around, id=call_id).first()


def read_cursor(text: str) -> tuple[datetime, uuid.UUID]:
    """The place that a cursor of this list names. Raises cursor.BadCursor."""
    moment, call_id = cursor.read(_CURSOR, text, 2)
    return _EPOCH + timedelta(microseconds=int(moment)), uuid.UUID(call_id)


def find_names(calls: Iterable[UsageRecord], *, organizations: bool = False) -> Names:
    """The names of the keys and members (and organizations) on these calls: one query for each kind."""
    key_ids, member_ids, organization_ids = set(), set(), set()
    for call in calls:
        key_ids.add(call.key_id)
        member_ids.add(call.member_id)
        organization_ids.add(call.organization_id)
    key_ids.discard(None)
    member_ids.discard(None)
    return Names(
        organizations=_pairs(Organization.objects.filter(pk__in=organization_ids), "name")
        if organizations
        else {},
        members=_pairs(Member.with_disabled.filter(pk__in=member_ids), "user__email") if member_ids else {},
        keys=_pairs(Key.objects.filter(pk__in=key_ids), "name") if key_ids else {},
    )


def visible_keys(sight: Sight) -> QuerySet[Key]:
    """The keys whose calls are in sight, revoked ones included."""
    keys = Key.objects.all()
    if sight.organization_id is not None:
        keys = keys.filter(organization_id=sight.organization_id)
    if sight.member_id is not None:
        keys = keys.filter(member_id=sight.member_id)
    return keys


def _in_sight(sight: Sight) -> QuerySet[UsageRecord]:
    calls = UsageRecord.objects.all()
    if sight.organization_id is not None:
        calls = calls.filter(organization_id=sight.organization_id)
    if sight.member_id is not None:
        calls = calls.filter(member_id=sight.member_id)
    return calls


def _narrow(calls: QuerySet[UsageRecord], filters: CallFilters) -> QuerySet[UsageRecord]:
    wanted = {
        "created_at__gte": filters.start,
        "created_at__lt": filters.end,
        "model": filters.model or None,
        "status__in": filters.statuses or None,
        "error_kind": filters.error_kind or None,
        "task_id": filters.task_id or None,
        "ttft_ms__gte": filters.min_ttft_ms,
        "total_ms__gte": filters.min_total_ms,
        "stream": filters.stream,
    }
    calls = calls.filter(**{name: value for name, value in wanted.items() if value is not None})
    if filters.key:
        named = Q(name=filters.key) | Q(prefix=filters.key)
        calls = calls.filter(key_id__in=list(Key.objects.filter(named).values_list("pk", flat=True)))
    if filters.member:
        calls = calls.filter(member_id__in=list(_members_called(filters.member)))
    return calls


def _members_called(text: str) -> QuerySet[Any, int]:
    """Ids of the members with this e-mail address or this id."""
    named = Q(user__email=text.lower())
    if text.isascii() and text.isdecimal() and len(text) < 19:
        named |= Q(pk=int(text))
    return Member.with_disabled.filter(named).values_list("pk", flat=True)


def _pairs(rows: QuerySet[Any], name: str) -> dict[int | None, str]:
    return dict(rows.values_list("pk", name))


def _make_cursor(call: UsageRecord) -> str:
    moment = (call.created_at - _EPOCH) // timedelta(microseconds=1)
    return cursor.make(_CURSOR, str(moment), call.id.hex)
