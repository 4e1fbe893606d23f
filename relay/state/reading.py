"""Reads the snapshot's rows, a few at a time: no page is so long that calls would notice the making of its values.

A *look* is one transaction that sees one state of the database. What has changed between two looks is what the log
(`relay_change`) holds of transactions that the second one sees and the first one did not: none is missed, however late
it committed, and none is read twice, however long another one stays open.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import psycopg

from billing.pricing import Rates
from relay.state import rows
from relay.state.snapshot import KeyState, SnapshotChange

__all__ = ["CHANGES", "KEYS_AT_ONCE", "Changes", "Look", "Prices", "Reading", "Span", "site"]

Connection = psycopg.AsyncConnection[Any]

QUERY_TIMEOUT_S = 10.0
# Rows of one query. More of them are not held at once.
PAGE = 500
# Keys that are made in one turn of the event loop. Measured: these take half a millisecond.
KEYS_AT_ONCE = 50
# Changes that are taken over in one step; more than these are brought together beside the snapshot in use.
CHANGES = 200

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT set_config('app.site', 'snapshot', true)"
_LOOK = """
    SELECT pg_current_snapshot()::text AS seen, clock_timestamp() AS at, pg_postmaster_start_time() AS server
"""
_CHANGES = """
    SELECT DISTINCT kind, row_id FROM relay_change
    WHERE xid >= pg_snapshot_xmin(%(seen)s::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, %(seen)s::pg_snapshot)
      AND (kind, row_id) > (%(kind)s, %(row_id)s)
    ORDER BY kind, row_id LIMIT %(count)s
"""


@dataclass(frozen=True, slots=True)
class Look:
    """The state of the database that one transaction sees. `at`: the database's clock; `server`: since when it runs."""

    seen: str
    at: datetime
    server: datetime

    @property
    def horizon(self) -> int:
        """The oldest transaction that was still open. It never goes back, unless this is another database."""
        return int(self.seen.split(":")[0])


@dataclass(frozen=True, slots=True)
class Span:
    """What lies between two looks. Prices have been followed until a time of their own."""

    since: Look
    until: Look
    priced_until: datetime


@dataclass(frozen=True, slots=True)
class Prices:
    """Until when prices have been followed, and when the next one comes into force."""

    until: datetime
    due: datetime | None


@dataclass(frozen=True, slots=True)
class _Kind:
    """How rows of one kind are read. `at_once`: made in one turn of the loop; chosen: under a millisecond."""

    change: Callable[[dict[Any, Any]], SnapshotChange]
    page: str
    by_id: str
    make: Callable[[Mapping[str, Any]], Any]
    at_once: int


Changes = Sequence[tuple[str, int]]


class Reading:
    """Reads pieces of the snapshot. Counts what it has read, in rows of all kinds and in queries."""

    def __init__(self, field_keys: Sequence[bytes]) -> None:
        self.rows_read = 0
        self.queries = 0
        self._kinds = {
            "organization": _Kind(
                lambda found: SnapshotChange(organizations=found),
                rows.ORGANIZATIONS_PAGE,
                rows.ORGANIZATIONS_BY_ID,
                rows.organization_of,
                100,
            ),
            "upstream": _Kind(
                lambda found: SnapshotChange(upstreams=found),
                rows.UPSTREAMS_PAGE,
                rows.UPSTREAMS_BY_ID,
                lambda row: rows.upstream_of(row, field_keys),
                10,
            ),
            "model": _Kind(
                lambda found: SnapshotChange(models=found),
                rows.MODELS_PAGE,
                rows.MODELS_BY_ID,
                rows.model_of,
                25,
            ),
            "key": _Kind(
                lambda found: SnapshotChange(keys=found),
                rows.KEYS_PAGE,
                rows.KEYS_BY_ID,
                rows.key_of,
                KEYS_AT_ONCE,
            ),
        }
        self._rates = _Kind(
            lambda found: SnapshotChange(rates=found),
            rows.RATES_PAGE,
            rows.RATES_OF_MODELS,
            rows.rates_of,
            25,
        )

    async def look(self, connection: Connection) -> Look:
        """The first statement of a look."""
        ((row,),) = [some async for some in self._slices(connection, _LOOK, {}, 2)]
        return Look(**row)

    async def everything(self, connection: Connection, look: Look) -> AsyncIterator[SnapshotChange]:
        """All rows, in pieces."""
        for kind in self._kinds.values():
            async for piece in self._pages(connection, kind, 0, {}):
                yield kind.change({value.id: value for value in piece})
        async for piece in self._pages(connection, self._rates, "", {"at": look.at}):
            yield SnapshotChange(rates={rates.model_name: rates for rates in piece})

    async def changes(
        self, connection: Connection, since: Look, behind: tuple[str, int] = ("", 0), *, count: int
    ) -> Changes:
        """What has changed since a look: the next changes of at most `count` behind one, in their order."""
        wanted = {"seen": since.seen, "kind": behind[0], "row_id": behind[1], "count": count}
        found: list[tuple[str, int]] = []
        async for some in self._slices(connection, _CHANGES, wanted, 250):
            found += [(row["kind"], row["row_id"]) for row in some]
        return found

    async def changed(self, connection: Connection, changes: Changes) -> AsyncIterator[SnapshotChange]:
        """The rows of these changes, but for prices, in pieces. An id that is not found is gone."""
        by_kind: dict[str, list[int]] = {}
        for name, row_id in changes:
            by_kind.setdefault(name, []).append(row_id)
        for name, kind in self._kinds.items():
            for ids in _batches(by_kind.get(name, ()), PAGE):
                gone = set(ids)
                async for some in self._slices(connection, kind.by_id, {"ids": ids}, kind.at_once):
                    made = {row["id"]: kind.make(row) for row in some}
                    gone -= made.keys()
                    yield kind.change(made)
                if gone:
                    yield kind.change(dict.fromkeys(gone))

    async def repriced(
        self, connection: Connection, versions: Sequence[int], names: Iterable[str], span: Span
    ) -> AsyncIterator[SnapshotChange]:
        """The prices in force of these models, and of those that got one: by these versions, or as its time came."""
        names = set(names)
        wanted = {"ids": list(versions), "since": span.priced_until, "at": span.until.at}
        async for some in self._slices(connection, rows.REPRICED, wanted, 250):
            names |= {row["model_name"] for row in some}
        for batch in _batches(sorted(names), PAGE):
            gone: set[str] = set(batch)
            wanted = {"names": batch, "at": span.until.at}
            async for some in self._slices(connection, self._rates.by_id, wanted, self._rates.at_once):
                made: dict[str, Rates | None] = {row["model_name"]: rows.rates_of(row) for row in some}
                gone -= made.keys()
                yield SnapshotChange(rates=made)
            if gone:
                yield SnapshotChange(rates=dict.fromkeys(gone))

    async def next_price(self, connection: Connection, look: Look) -> datetime | None:
        """When the next price comes into force."""
        ((row,),) = [some async for some in self._slices(connection, rows.NEXT_PRICE, {"at": look.at}, 2)]
        due: datetime | None = row["due"]
        return due

    async def keys(self, connection: Connection, fingerprints: Sequence[bytes]) -> list[KeyState]:
        """The keys of these fingerprints, as far as there are any."""
        wanted = {"ids": list(fingerprints)}
        found: list[KeyState] = []
        async for some in self._slices(connection, rows.KEYS_BY_FINGERPRINT, wanted, KEYS_AT_ONCE):
            found += map(rows.key_of, some)
        return found

    async def _pages(
        self, connection: Connection, kind: _Kind, after: object, wanted: Mapping[str, object]
    ) -> AsyncIterator[list[Any]]:
        while True:
            count = 0
            page = {**wanted, "after": after, "count": PAGE}
            async for some in self._slices(connection, kind.page, page, kind.at_once):
                count += len(some)
                after = some[-1]["model_name" if kind is self._rates else "id"]
                yield [kind.make(row) for row in some]
            if count < PAGE:
                return

    async def _slices(
        self, connection: Connection, query: str, wanted: Mapping[str, object], at_once: int
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """The rows of a query, so many in one turn of the loop."""
        async with connection.cursor(binary=True) as cursor:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                await cursor.execute(query.encode(), wanted)
            self.queries += 1
            while some := await cursor.fetchmany(at_once):
                self.rows_read += len(some)
                yield some
                if len(some) < at_once:
                    return
                await asyncio.sleep(0)


@asynccontextmanager
async def site(connection: Connection) -> AsyncIterator[None]:
    """One transaction that reads, and sees all rows in one state. Where it fails, the connection is closed."""
    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            await connection.execute(_BEGIN)
        yield
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            await connection.execute("COMMIT")
    except BaseException:
        await connection.close()
        raise


def _batches(values: Iterable[Any], size: int) -> Iterable[list[Any]]:
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch
