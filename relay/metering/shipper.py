"""One task per process that hands closed calls to `billing.ingest`, and one that flushes the journal to the disk.

The database away: records wait in the journal, and calls go on until it is full. A record that the database refuses
for what it holds is written to `rejected.journal` beside the segments, counted and logged, so that it stops nobody.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from billing.fitting import encode_record
from billing.ingest import Rejected, ingest_lines
from billing.records import CallRecord
from relay.metering.journal import Journal

__all__ = ["Shipper"]

log = logging.getLogger(__name__)

INTERVAL_S = 0.2
SYNC_S = 0.05
BATCH = 1_000
RETRY_FIRST_S = 0.25
RETRY_MOST_S = 5.0
INGEST_TIMEOUT_S = 20.0


class Shipper:
    """Ships one journal's closes over its own connection under the role `relay_ingest`."""

    def __init__(self, journal: Journal, conninfo: dict[str, str], folder: Path) -> None:
        self._journal = journal
        self._conninfo = conninfo
        self._rejected = folder / "rejected.journal"
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lock = asyncio.Lock()  # the connection
        self._turn = asyncio.Lock()  # from reading the front of the journal to cutting it off
        self._away = False
        self.rejected = 0

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._ship_all(), name="shipper"),
            asyncio.create_task(self._sync_all(), name="journal-sync"),
        ]

    async def close(self, within_s: float) -> None:
        """Ship what waits, for at most this long; what is left stays in the journal."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        with suppress(TimeoutError, psycopg.Error, OSError):
            async with asyncio.timeout(within_s):
                while self._journal.queued:
                    await self.ship_once()
        if self._connection is not None:
            await self._connection.close()

    async def ship_records(self, records: Sequence[CallRecord]) -> None:
        """`ship_lines` for records that are no JSON yet."""
        await self.ship_lines([encode_record(record) for record in records])

    async def ship_lines(self, lines: Sequence[bytes]) -> None:
        """Hand these records to the ledger. Raises psycopg.Error, OSError or TimeoutError when the database is away."""
        async with self._lock, asyncio.timeout(INGEST_TIMEOUT_S):
            if self._connection is None or self._connection.closed:
                self._connection = await psycopg.AsyncConnection.connect(
                    psycopg.conninfo.make_conninfo(**self._conninfo, connect_timeout=5), autocommit=True
                )
            try:
                result = await ingest_lines(self._connection, lines)
            except BaseException:
                await self._connection.close()
                raise
        if result.rejected:
            self._put_aside(result.rejected)

    async def ship_once(self) -> int:
        """Ship one batch; returns how many records left the journal."""
        async with self._turn:
            batch = self._journal.batch(BATCH)
            if batch:
                await self.ship_lines(batch)
                self._journal.shipped(len(batch))
            return len(batch)

    async def _ship_all(self) -> None:
        pause = RETRY_FIRST_S
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                while self._journal.queued:
                    await self.ship_once()
                pause = RETRY_FIRST_S
                if self._away:
                    self._away = False
                    log.info("usage records reach the database again")
            except (psycopg.Error, OSError, TimeoutError) as exc:
                if not self._away:
                    self._away = True
                    log.warning("usage records wait in the journal: %s", type(exc).__name__)
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST_S)

    async def _sync_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SYNC_S)
            if self._journal.dirty:
                with suppress(OSError):
                    await loop.run_in_executor(None, self._journal.sync)

    def _put_aside(self, rejected: Sequence[Rejected]) -> None:
        self.rejected += len(rejected)
        with open(self._rejected, "ab", opener=_private) as file:
            for refused in rejected:
                log.error("usage record %s was refused and put aside: %s", refused.record.id, refused.reason)
                file.write(b"c %b\n" % refused.line)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
