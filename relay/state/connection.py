"""A connection of our own to the database, made when it is needed, for one use at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from relay.state.lookup import DatabaseAway

__all__ = ["Line", "connect"]

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Any]


async def connect(conninfo: dict[str, str]) -> Connection:
    """A connection for reading, in transactions of `reading.site`."""
    info = psycopg.conninfo.make_conninfo(**conninfo, connect_timeout=5)
    return await psycopg.AsyncConnection.connect(info, autocommit=True, row_factory=dict_row)


class Line:
    """One such connection. Whoever comes while it is in use waits; all of it within a limit."""

    def __init__(self, conninfo: dict[str, str]) -> None:
        self._conninfo = conninfo
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def use(self, work: Callable[[Connection], Awaitable[T]], *, within_s: float) -> T:
        """What `work` gives. Raises DatabaseAway."""
        try:
            async with asyncio.timeout(within_s), self._lock:
                if self._connection is None or self._connection.closed:
                    self._connection = await connect(self._conninfo)
                return await work(self._connection)
        except (psycopg.Error, OSError, TimeoutError) as exc:
            raise DatabaseAway from exc

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
