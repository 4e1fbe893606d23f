"""Reads of the call log. All run inside a scope (accounts.scope).

Lists are paged by key: the next page goes on after the (created_at, id) where the last one ended. How a page is found,
and why it may end before it is full, is `console.calls.search`.
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
from console.calls.search import Place, Wanted, in_sight, search
from console.gate import Sight

__all__ = ["CallPage", "Names", "find_call", "find_names", "list_calls", "read_cursor", "visible_keys"]

_CURSOR = "calls"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# `created_at` is the time inside the id; the second on either side only picks the partition.
_AROUND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CallPage:
    """One page of calls, newest first, and the cursor of the next one (None on the last).

    `searched_to` is the moment down to which a page was searched that ends before it is full and is not the last.
    """

    calls: list[UsageRecord]
    next_cursor: str | None
    searched_to: datetime | None = None


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
    after: Place | None = None,
    size: int,
    only: Iterable[str] = (),
) -> CallPage:
    """The newest `size` calls in sight that the filters let through, from `after` on, as far as one page looks."""
    wanted = Wanted(
        filters,
        keys=_keys_called(filters.key) if filters.key else None,
        members=_members_called(filters.member) if filters.member else None,
    )
    found = search(sight, wanted, after=after, size=size, only=only)
    searched_to = found.end[0] if found.end is not None and len(found.calls) < size else None
    return CallPage(found.calls, None if found.end is None else _make_cursor(found.end), searched_to)


def find_call(sight: Sight, call_id: uuid.UUID) -> UsageRecord | None:
    """The call of this id if it is in sight."""
    try:
        moment = created_at_of(str(call_id))
    except (ValueError, OverflowError):
        return None
    around = (moment - _AROUND, moment + _AROUND)
    return in_sight(sight).filter(created_at__range=around, id=call_id).first()


def read_cursor(text: str) -> Place:
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


def _keys_called(text: str) -> tuple[tuple[int, int], ...]:
    """(organization, id) of the keys with this name or prefix, revoked ones included."""
    return tuple(
        Key.objects.filter(Q(name=text) | Q(prefix=text)).values_list("organization_id", "pk").distinct()
    )


def _members_called(text: str) -> tuple[tuple[int, int], ...]:
    """(organization, id) of the members with this e-mail address or this id."""
    named = Q(user__email=text.lower())
    if text.isascii() and text.isdecimal() and len(text) < 19:
        named |= Q(pk=int(text))
    return tuple(Member.with_disabled.filter(named).values_list("organization_id", "pk"))


def _pairs(rows: QuerySet[Any], name: str) -> dict[int | None, str]:
    return dict(rows.values_list("pk", name))


def _make_cursor(place: Place) -> str:
    moment = (place[0] - _EPOCH) // timedelta(microseconds=1)
    return cursor.make(_CURSOR, str(moment), place[1].hex)
