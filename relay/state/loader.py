"""Keeps a process's snapshot fresh: all of it at the start, then what changed, by version.

Triggers write one `relay_change` row per changed row, in the changing transaction, and notify `yizhan_changes`. The
loader listens, and looks every `POLL_S` besides, for a pooler between us and the database may not carry
notifications. Each look asks for all changes from the oldest transaction that was still open at the look before, so a
transaction that commits late is not missed; reading a row twice is harmless. One look sees one state of the database,
and what it read is taken over in one synchronous step.

A price comes into force at its own time, which nothing notes in the log: the loader remembers when the next one does,
and reads all of them then.

A key that memory does not know gets one look in the database (`find_key`), and the answer "no" is remembered for
`UNKNOWN_S`, bounded. While the database is away such a key is "not known now", never "wrong".
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from billing.balances import spent_async
from billing.pricing import Rates
from relay.state import rows
from relay.state.snapshot import KeyState, Snapshot, SnapshotChange

__all__ = ["DatabaseAway", "SnapshotLoader"]

log = logging.getLogger(__name__)

POLL_S = 0.5
RETRY_S = 1.0
UNKNOWN_S = 5.0
UNKNOWN_MAX = 10_000
QUERY_TIMEOUT_S = 10.0
# Waiting for the one connection included.
LOOK_UP_S = 2.0
READ_TOTALS_S = 5.0
# Changes are pruned after an hour: whoever was cut off for nearly that long reads everything anew.
CHANGES_KEPT_S = 1_800.0

_HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon"
_CHANGES = "SELECT DISTINCT kind, row_id FROM relay_change WHERE xid >= %s::xid8"
_NEXT_PRICE = """
    SELECT extract(epoch FROM min(valid_from) - clock_timestamp())::float8 AS in_s
    FROM billing_price WHERE valid_from > clock_timestamp()
"""

T = TypeVar("T")
Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]


class DatabaseAway(Exception):
    """The database could not be asked."""


class SnapshotLoader:
    """Owns the snapshot of one process and the task that keeps it fresh."""

    def __init__(self, conninfo: dict[str, str], *, field_keys: Sequence[bytes]) -> None:
        self.snapshot = Snapshot()
        self.loaded = asyncio.Event()
        self._conninfo = conninfo
        self._field_keys = field_keys
        self._horizon = "0"
        self._fresh_at = 0.0
        self._next_price_at = inf
        self._unknown: dict[bytes, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._lookup: psycopg.AsyncConnection[Any] | None = None
        self._lookup_lock = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._away = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_fresh(), name="snapshot")

    async def until_loaded(self, within_s: float) -> None:
        """Wait for the first load, at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.loaded.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._lookup is not None:
            await self._lookup.close()

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        info = psycopg.conninfo.make_conninfo(**self._conninfo, connect_timeout=5)
        connection = await psycopg.AsyncConnection.connect(info, autocommit=True, row_factory=dict_row)
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        return connection

    async def _keep_fresh(self) -> None:
        while True:
            try:
                await self._follow()
            except (psycopg.Error, OSError, TimeoutError) as exc:
                self._next_price_at = 0.0  # what came into force may not have been taken over
                if not self._away:
                    self._away = True
                    log.warning(
                        "the snapshot cannot be refreshed, the last one serves: %s", type(exc).__name__
                    )
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        connection = await self._connect()
        try:
            await connection.execute("LISTEN yizhan_changes")
            if self.loaded.is_set() and time.monotonic() - self._fresh_at < CHANGES_KEPT_S:
                await self._refresh(connection)
            else:
                await self._load_all(connection)
            if self._away:
                self._away = False
                log.info("the snapshot is fresh again")
            while True:
                async for _ in connection.notifies(timeout=POLL_S, stop_after=1):
                    pass
                await self._refresh(connection)
        finally:
            await connection.close()

    async def _scoped(self, connection: psycopg.AsyncConnection[Any], read: Callable[[], Awaitable[T]]) -> T:
        async with asyncio.timeout(QUERY_TIMEOUT_S), connection.transaction():
            await connection.execute("SELECT set_config('app.site', 'snapshot', true)")
            return await read()

    async def _load_all(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async with asyncio.timeout(120), connection.transaction():
            await connection.execute("SELECT set_config('app.site', 'snapshot', true)")
            horizon = await self._read_horizon(connection)
            change = await self._read(connection, None)
        self.snapshot.replace_all(change)
        self._unknown.clear()
        self._horizon = horizon
        self._fresh_at = time.monotonic()
        self.loaded.set()

    async def _read_horizon(self, connection: psycopg.AsyncConnection[Any]) -> str:
        row = await (await connection.execute(_HORIZON)).fetchone()
        return str(row["horizon"]) if row else "0"

    async def _refresh(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async def read() -> tuple[str, SnapshotChange | None]:
            horizon = await self._read_horizon(connection)
            changed = await (await connection.execute(_CHANGES, [self._horizon])).fetchall()
            if not changed and time.monotonic() < self._next_price_at:
                return horizon, None
            wanted: dict[str, list[int]] = {}
            for row in changed:
                wanted.setdefault(row["kind"], []).append(row["row_id"])
            return horizon, await self._read(connection, wanted)

        # One look at a time: of two, the older one could be taken over last and undo the newer.
        async with self._looking:
            horizon, change = await self._scoped(connection, read)
            if change is not None:
                self.snapshot.apply(change)
                if change.keys:
                    self._unknown.clear()
            self._horizon = horizon
            self._fresh_at = time.monotonic()

    async def _read(
        self, connection: psycopg.AsyncConnection[Any], wanted: dict[str, list[int]] | None
    ) -> SnapshotChange:
        """All rows (None) or those wanted by kind; an id that is wanted and not found is gone."""

        async def fetch(kind: str, query: str) -> tuple[list[dict[str, Any]], dict[int, None]]:
            if wanted is None:
                return await (await connection.execute(query, {"ids": None})).fetchall(), {}
            ids = wanted.get(kind)
            if not ids:
                return [], {}
            return await (await connection.execute(query, {"ids": ids})).fetchall(), dict.fromkeys(ids)

        change = SnapshotChange()
        found, gone = await fetch("organization", rows.ORGANIZATIONS)
        change.organizations = {**gone, **{row["id"]: rows.organization_of(row) for row in found}}
        found, gone = await fetch("upstream", rows.UPSTREAMS)
        change.upstreams = {**gone, **{row["id"]: rows.upstream_of(row, self._field_keys) for row in found}}
        found, gone = await fetch("model", rows.MODELS)
        change.models = {**gone, **{row["id"]: rows.model_of(row) for row in found}}
        change.rates = await self._read_rates(connection, None if wanted is None else wanted.get("price", []))
        found, gone = await fetch("key", rows.KEYS)
        change.keys = {**gone, **{row["id"]: rows.key_of(row) for row in found}}
        return change

    async def _read_rates(
        self, connection: psycopg.AsyncConnection[Any], ids: list[int] | None
    ) -> dict[str, Rates | None]:
        """The prices in force, of the models that these versions belong to; all of them where one came into force."""
        if ids is not None and time.monotonic() >= self._next_price_at:
            ids = None
        if ids == []:
            return {}
        # First when the next one is due: what comes into force in between is then read twice, not never.
        row = await (await connection.execute(_NEXT_PRICE)).fetchone()
        in_s = row["in_s"] if row else None
        self._next_price_at = inf if in_s is None else time.monotonic() + in_s
        found = await (await connection.execute(rows.RATES, {"ids": ids})).fetchall()
        return {row["model_name"]: rows.rates_of(row) for row in found}

    async def read_totals(self, organization_id: int) -> Mapping[str, int]:
        """What each level of an organization has spent, from ingestion's totals. Raises DatabaseAway."""
        try:
            async with asyncio.timeout(READ_TOTALS_S), self._lookup_lock:
                connection = await self._lookup_connection()

                async def read() -> Mapping[str, int]:
                    return (await spent_async(connection, [organization_id]))[organization_id]

                return await self._scoped(connection, read)
        except (psycopg.Error, OSError, TimeoutError) as exc:
            raise DatabaseAway from exc

    async def _lookup_connection(self) -> psycopg.AsyncConnection[Any]:
        if self._lookup is None or self._lookup.closed:
            self._lookup = await self._connect()
        return self._lookup

    async def find_key(self, fingerprints: Sequence[bytes]) -> KeyState | None:
        """A key that memory does not know, looked up once. None: it does not exist. Raises DatabaseAway."""
        now = time.monotonic()
        if self._unknown.get(fingerprints[0], 0.0) > now:
            return None
        row = await self._look_up(fingerprints)
        if row is not None:
            key = rows.key_of(row)
            return self.snapshot.key(key.fingerprint) or key
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown = {print_: until for print_, until in self._unknown.items() if until > now}
            if len(self._unknown) >= UNKNOWN_MAX:
                self._unknown.clear()
        self._unknown[fingerprints[0]] = now + UNKNOWN_S
        return None

    async def _look_up(self, fingerprints: Sequence[bytes]) -> dict[str, Any] | None:
        """The key's row. Where there is one, memory is behind: it catches up first, so that the call also finds what
        was changed together with its key.
        """
        try:
            async with asyncio.timeout(LOOK_UP_S), self._lookup_lock:
                connection = await self._lookup_connection()

                async def read() -> dict[str, Any] | None:
                    cursor = await connection.execute(
                        rows.KEY_BY_FINGERPRINT, {"fingerprints": list(fingerprints)}
                    )
                    return await cursor.fetchone()

                row = await self._scoped(connection, read)
                if row is not None and self.loaded.is_set():
                    await self._refresh(connection)
                return row
        except (psycopg.Error, OSError, TimeoutError) as exc:
            raise DatabaseAway from exc
