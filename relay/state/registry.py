"""Which relay processes live, and what the books say: what lost limit counters are brought back from.

Every process holds an advisory lock under a number of its own for as long as its connection lives, so PostgreSQL itself
knows who is there, on any number of machines, and forgets a killed process at once. The class of the lock stands for
the limit store that the process counts in.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

import psycopg

from billing.balances import spent_async
from relay.state.loader import DatabaseAway

__all__ = ["Registry"]

log = logging.getLogger(__name__)

# How soon a lost connection is noticed and made again.
LOOK_S = 1.0
# A process whose connection was just lost is not the only one: the others need as long to be back.
RETURN_S = 3.0
QUERY_S = 5.0
_MOST = 2**31 - 1

_PEERS = """
    SELECT objid::bigint FROM pg_locks
    WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_RECORDED = "SELECT id::text FROM billing_usagerecord WHERE organization_id = %s AND id = ANY(%s::uuid[])"


class Registry:
    """This process among the others. `store` names the limit store, the same for all who share one."""

    def __init__(self, conninfo: Mapping[str, str], store: str) -> None:
        self.number = 1 + secrets.randbelow(_MOST)
        self._group = crc32(store.encode()) & _MOST
        self._conninfo = conninfo
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self._was_there = False
        self._back_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._stay(), name="registry")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._leave()

    async def peers(self) -> frozenset[int]:
        """The numbers of all processes that count in our store, this one included.

        Raises DatabaseAway, also for a moment after the connection was lost: others are on their way back then.
        """
        try:
            async with asyncio.timeout(QUERY_S), self._lock:
                connection = await self._connected()
                rows = await (await connection.execute(_PEERS, [self._group])).fetchall()
        except (psycopg.Error, OSError, TimeoutError) as exc:
            raise DatabaseAway from exc
        if time.monotonic() < self._back_at + RETURN_S and self._back_at:
            raise DatabaseAway
        return frozenset(row[0] for row in rows)

    async def totals(
        self, organization_id: int, call_ids: Collection[str]
    ) -> tuple[Mapping[str, int], list[str]]:
        """What each level of an organization has spent, and which of these calls are part of it, at one moment.

        Raises DatabaseAway.
        """
        try:
            async with asyncio.timeout(QUERY_S), self._lock:
                connection = await self._connected()
                async with connection.transaction():
                    await connection.execute("SELECT set_config('app.site', 'counters', true)")
                    spent = (await spent_async(connection, [organization_id]))[organization_id]
                    cursor = await connection.execute(_RECORDED, [organization_id, list(call_ids)])
                    return spent, [row[0] for row in await cursor.fetchall()]
        except (psycopg.Error, OSError, TimeoutError) as exc:
            raise DatabaseAway from exc

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        """The connection, made again if it was lost, with our lock on it."""
        if self._connection is None or self._connection.closed:
            info = psycopg.conninfo.make_conninfo(**self._conninfo, connect_timeout=5)
            connection = await psycopg.AsyncConnection.connect(info, autocommit=True)
            try:
                await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
                await connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", [self._group, self.number])
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
            if self._was_there:
                self._back_at = time.monotonic()
            self._was_there = True
        return self._connection

    async def _stay(self) -> None:
        while True:
            try:
                async with asyncio.timeout(QUERY_S), self._lock:
                    await (await self._connected()).execute("SELECT 1")
            except (psycopg.Error, OSError, TimeoutError):
                await self._leave()
            await asyncio.sleep(LOOK_S)

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
