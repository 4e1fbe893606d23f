"""Reads of an organization's wallet. All run inside a scope (accounts.scope)."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet, Sum

from billing.models import Account, LedgerEntry, PostingKind
from console import cursor

__all__ = ["CREDIT_KINDS", "PostingPage", "PostingRow", "balance_nano", "list_postings", "read_cursor"]

_CURSOR = "postings"
CREDIT_KINDS = tuple(kind for kind in PostingKind.values if kind != PostingKind.USAGE)


@dataclass(frozen=True, slots=True)
class PostingRow:
    """One posting as the wallet sees it. `balance_nano` is the wallet's after it, where the list is gapless."""

    id: int
    created_at: datetime
    kind: str
    memo: str
    amount_nano: int
    balance_nano: int | None


@dataclass(frozen=True, slots=True)
class PostingPage:
    postings: list[PostingRow]
    next_cursor: str | None


def balance_nano(organization_id: int) -> int:
    """The sum of the wallet's entries. Holds are not taken off."""
    return _sum(_wallet(organization_id))


def list_postings(
    organization_id: int, *, kinds: tuple[str, ...] = (), after: int | None = None, size: int
) -> PostingPage:
    """The newest `size` postings that touched the wallet, from `after` on. Ids grow with time."""
    entries = _wallet(organization_id)
    if kinds:
        entries = entries.filter(posting__kind__in=kinds)
    if after is not None:
        entries = entries.filter(posting_id__lt=after)
    fields = ("posting_id", "amount_nano", at := "posting__created_at", "posting__kind", "posting__memo")
    rows = list(entries.order_by("-posting_id", "-id").values(*fields)[: size + 1])
    more = len(rows) > size
    rows = rows[:size]
    balance = None
    if rows and not kinds:
        balance = _sum(_wallet(organization_id).filter(posting_id__lte=rows[0]["posting_id"]))
    found = []
    for row in rows:
        found.append(
            PostingRow(
                row["posting_id"],
                row[at],
                row["posting__kind"],
                row["posting__memo"],
                row["amount_nano"],
                balance,
            )
        )
        if balance is not None:
            balance -= row["amount_nano"]
    return PostingPage(found, cursor.make(_CURSOR, str(rows[-1]["posting_id"])) if more else None)


def read_cursor(text: str) -> int:
    """The posting that a cursor of this list names. Raises cursor.BadCursor."""
    (posting_id,) = cursor.read(_CURSOR, text, 1)
    return int(posting_id)


def _wallet(organization_id: int) -> QuerySet[LedgerEntry]:
    return LedgerEntry.objects.filter(organization_id=organization_id, account=Account.WALLET)


def _sum(entries: QuerySet[LedgerEntry]) -> int:
    return int(entries.aggregate(nano=Sum(F("amount_nano")))["nano"] or 0)
