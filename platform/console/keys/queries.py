"""Reads of an organization's keys. All run inside a scope (accounts.scope)."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import QuerySet

from accounts.models import Key
from billing.models import SpentTotal
from console import cursor

__all__ = ["KeyPage", "list_keys", "read_cursor", "spent_by_key"]

_CURSOR = "keys"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KeyPage:
    keys: list[Key]
    next_cursor: str | None


def list_keys(keys: QuerySet[Key], *, after: tuple[datetime, int] | None = None, size: int) -> KeyPage:
    """The newest `size` of these keys, from `after` on, with their members."""
    found = keys.select_related("member__user", "organization").order_by("-created_at", "-pk")
    if after is not None:
        moment, key_id = after
        found = found.filter(created_at__lte=moment).exclude(created_at=moment, pk__gte=key_id)
    rows = list(found[: size + 1])
    if len(rows) <= size:
        return KeyPage(rows, None)
    rows.pop()
    moment_us = (rows[-1].created_at - _EPOCH) // timedelta(microseconds=1)
    return KeyPage(rows, cursor.make(_CURSOR, str(moment_us), str(rows[-1].pk)))


def read_cursor(text: str) -> tuple[datetime, int]:
    """The place that a cursor of this list names. Raises cursor.BadCursor."""
    moment, key_id = cursor.read(_CURSOR, text, 2)
    return _EPOCH + timedelta(microseconds=int(moment)), int(key_id)


def spent_by_key(keys: list[Key]) -> dict[int, int]:
    """Key id -> nano-units spent for life, for the keys that spent anything."""
    levels = {f"k{key.pk}": key.pk for key in keys}
    rows = SpentTotal.objects.filter(
        organization_id__in={key.organization_id for key in keys}, level__in=levels
    ).values_list("level", "spent_nano")
    return {levels[level]: nano for level, nano in rows}
