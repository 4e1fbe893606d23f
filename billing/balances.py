"""What organizations have and have spent, read with plain SQL, so that relay processes and Django ask the
same.

Three numbers per organization, all in nano-units: *credits* (what was paid in: wallet entries of postings
that are not usage), *balance* (the sum of all wallet entries) and *spent* (the lifetime total of a level,
kept by ingestion; `"o"` is the organization, `"k<id>"` a key). Always balance = credits - spent["o"]; limits
use credits and spent, so that they need not add up every posting there ever was.

The asynchronous functions take a psycopg connection, the others a cursor of Django or psycopg. Rows are under
row-level security: the caller's role or scope decides what is seen, and an organization without a row has 0.
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import psycopg
from psycopg.rows import tuple_row

__all__ = ["Cursor", "balances", "balances_async", "credits_async", "credits_of", "spent", "spent_async"]

_CREDITS = """
    SELECT p.organization_id, sum(e.amount_nano)::bigint
    FROM billing_posting AS p JOIN billing_ledgerentry AS e ON e.posting_id = p.id
    WHERE p.organization_id = ANY(%s) AND p.kind <> 'usage' AND e.account = 'wallet'
    GROUP BY p.organization_id
"""
_BALANCES = """
    SELECT organization_id, sum(amount_nano)::bigint FROM billing_ledgerentry
    WHERE organization_id = ANY(%s) AND account = 'wallet' GROUP BY organization_id
"""
_SPENT = """
    SELECT organization_id, level, spent_nano FROM billing_spenttotal
    WHERE organization_id = ANY(%s) ORDER BY organization_id, level
"""


class Cursor(Protocol):
    """What Django's and psycopg's cursors have in common."""

    def execute(self, query: str, params: Sequence[Any], /) -> Any: ...

    def fetchall(self) -> list[Any]: ...


def credits_of(cursor: Cursor, organization_ids: Collection[int]) -> dict[int, int]:
    """What was paid into each wallet: opening credit, top-ups, refunds, adjustments."""
    return _by_organization(organization_ids, _rows(cursor, _CREDITS, organization_ids))


def balances(cursor: Cursor, organization_ids: Collection[int]) -> dict[int, int]:
    """The sum of each wallet's entries. Holds are not taken off."""
    return _by_organization(organization_ids, _rows(cursor, _BALANCES, organization_ids))


def spent(cursor: Cursor, organization_ids: Collection[int]) -> dict[int, dict[str, int]]:
    """For each organization: level -> what it has spent for life. A level that never spent is missing."""
    return _by_level(organization_ids, _rows(cursor, _SPENT, organization_ids))


async def credits_async(
    connection: psycopg.AsyncConnection, organization_ids: Collection[int]
) -> dict[int, int]:
    """As `credits_of`, over an asynchronous connection."""
    return _by_organization(organization_ids, await _rows_async(connection, _CREDITS, organization_ids))


async def balances_async(
    connection: psycopg.AsyncConnection, organization_ids: Collection[int]
) -> dict[int, int]:
    """As `balances`, over an asynchronous connection."""
    return _by_organization(organization_ids, await _rows_async(connection, _BALANCES, organization_ids))


async def spent_async(
    connection: psycopg.AsyncConnection, organization_ids: Collection[int]
) -> dict[int, dict[str, int]]:
    """As `spent`, over an asynchronous connection."""
    return _by_level(organization_ids, await _rows_async(connection, _SPENT, organization_ids))


def _rows(cursor: Cursor, query: str, organization_ids: Collection[int]) -> list[Any]:
    cursor.execute(query, [list(organization_ids)])
    return cursor.fetchall()


async def _rows_async(
    connection: psycopg.AsyncConnection, query: Any, organization_ids: Collection[int]
) -> list[Any]:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query, [list(organization_ids)])
        return await cursor.fetchall()


def _by_organization(organization_ids: Collection[int], rows: list[Any]) -> dict[int, int]:
    return dict.fromkeys(organization_ids, 0) | dict(rows)


def _by_level(organization_ids: Collection[int], rows: list[Any]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {organization_id: {} for organization_id in organization_ids}
    for organization_id, level, nano in rows:
        found[organization_id][level] = nano
    return found
