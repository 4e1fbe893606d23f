"""Keeps a process's snapshot fresh: all of it at the start, then what changed, by version.

Triggers write one `relay_change` row per changed row, in the changing transaction, and notify `yizhan_changes`. The
loader listens, and looks every `POLL_S` besides, for a pooler between us and the database may not carry
notifications. What few rows a look finds changed are taken over in one synchronous step. Many, or all, are brought
together in a branch of the snapshot, a few in each turn of the event loop, while calls go on with the snapshot as it
is; the branch then takes its place in one step. So calls always see one state of the database, and one that is a
commit of it: a key with its organization, a model with its routes and prices.

Everything is read anew at the start, when the log may have been cut since the last look, and when the server is
another one or has been started again: it may have been restored to an older state.

A price comes into force at its own time, which nothing notes in the log: the loader remembers when the next one does.

A key that memory does not know gets one look in the database (`find_key`, see `lookup`).
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf

import psycopg

from billing.balances import spent_async
from relay.state.connection import Connection, Line, connect
from relay.state.keys import KeyState
from relay.state.lookup import LOOK_UP_S, DatabaseAway, KeyLookUp
from relay.state.reading import CHANGES, Changes, Look, Prices, Reading, Span, site
from relay.state.snapshot import Snapshot, SnapshotChange

__all__ = ["DatabaseAway", "SnapshotLoader"]

log = logging.getLogger(__name__)

POLL_S = 0.5
RETRY_S = 1.0
# Between two looks, however many commits are told of meanwhile. Chosen: far below the second within which a change
# must be known, and a few per cent of a core at most.
LOOK_GAP_S = 0.02
READ_TOTALS_S = 5.0
# Changes are pruned after an hour: whoever was cut off for nearly that long reads everything anew.
CHANGES_KEPT = timedelta(minutes=30)


class SnapshotLoader:
    """Owns the snapshot of one process and the task that keeps it fresh."""

    def __init__(self, conninfo: dict[str, str], *, field_keys: Sequence[bytes]) -> None:
        self.snapshot = Snapshot()
        self.loaded = asyncio.Event()
        self.reading = Reading(field_keys)
        self._conninfo = conninfo
        self._look: Look | None = None
        self._is_due_anew = True
        self._priced_until = datetime.min.replace(tzinfo=UTC)
        self._next_price_at = inf
        self._left_over: list[Iterator[None]] = []
        self._task: asyncio.Task[None] | None = None
        self.look_up = KeyLookUp(self._find)
        self._look_up_line = Line(conninfo)
        self._totals_line = Line(conninfo)
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
        await self.look_up.close()
        await self._look_up_line.close()
        await self._totals_line.close()

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
            await self._free_left_over()
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        connection = await connect(self._conninfo)
        try:
            await connection.execute("LISTEN yizhan_changes")
            while True:
                await self._refresh(connection)
                if self._is_due_anew:
                    await self._load_all(connection)
                if self._away:
                    self._away = False
                    log.info("the snapshot is fresh again")
                await self._free_left_over()
                await asyncio.sleep(LOOK_GAP_S)
                async for _ in connection.notifies(timeout=POLL_S, stop_after=1):
                    pass
        finally:
            await connection.close()

    async def _load_all(self, connection: Connection) -> None:
        """Read everything anew beside the snapshot in use, and let it take its place."""
        branch = self.snapshot.branch(anew=True)
        try:
            async with site(connection):
                look = await self.reading.look(connection)
                async for piece in self.reading.everything(connection, look):
                    branch.apply(piece)
            for _ in branch.drop_unseen():
                await asyncio.sleep(0)
            # A look-up may have brought the snapshot in use further than this: what is newer must not be undone.
            async with self._looking:
                async with site(connection):
                    newest = await self.reading.look(connection)
                    span = Span(look, newest, look.at)
                    changes = await self.reading.changes(connection, look, count=CHANGES)
                    due = await self._bring_up(branch, connection, span, changes, is_price_due=True)
                self._take_over(branch, newest, due)
                self._is_due_anew = False
        except BaseException:
            self._left_over.append(branch.free())
            raise
        self.loaded.set()

    async def _refresh(self, connection: Connection) -> None:
        """Take over what has changed since the last look, or see that everything must be read anew."""
        # One look at a time: of two, the older one could be taken over last and undo the newer.
        async with self._looking:
            since = self._look
            if since is None:
                return
            branch: Snapshot | None = None
            try:
                async with site(connection):
                    look = await self.reading.look(connection)
                    self._is_due_anew |= not _is_sure(look, since)
                    span = Span(since, look, self._priced_until)
                    changes = await self.reading.changes(connection, since, count=CHANGES)
                    branch = self.snapshot.branch() if len(changes) == CHANGES else None
                    news = branch or SnapshotChange()
                    is_price_due = time.monotonic() >= self._next_price_at
                    due = await self._bring_up(news, connection, span, changes, is_price_due=is_price_due)
                self._take_over(news, look, due)
            except BaseException:
                if branch is not None:
                    self._left_over.append(branch.free())
                raise

    async def _bring_up(
        self,
        news: Snapshot | SnapshotChange,
        connection: Connection,
        span: Span,
        changes: Changes,
        *,
        is_price_due: bool,
    ) -> Prices | None:
        """Add what has changed in this span, of which `changes` are the first. Returns when prices were read."""
        versions: list[int] = []
        while changes:
            versions += [row_id for kind, row_id in changes if kind == "price"]
            async for piece in self.reading.changed(connection, changes):
                news.apply(piece)
            if len(changes) < CHANGES:
                break
            changes = await self.reading.changes(connection, span.since, changes[-1], count=CHANGES)
        if not versions and not is_price_due:
            return None
        known = self.snapshot.models_priced_by(versions)
        async for piece in self.reading.repriced(connection, versions, known, span):
            news.apply(piece)
        return Prices(span.until.at, await self.reading.next_price(connection, span.until))

    def _take_over(self, news: Snapshot | SnapshotChange, look: Look, prices: Prices | None) -> None:
        """Let calls see what was read, in one step."""
        if isinstance(news, Snapshot):
            self._left_over.append(self.snapshot.become(news))
            self.look_up.forget_all()
        elif not news.is_empty:
            self.snapshot.apply(news)
            self.look_up.forget([key.fingerprint for key in news.keys.values() if key is not None])
        self._look = look
        if prices is not None:
            self._priced_until = prices.until
            due_in_s = inf if prices.due is None else (prices.due - prices.until).total_seconds()
            self._next_price_at = time.monotonic() + due_in_s

    async def _free_left_over(self) -> None:
        while self._left_over:
            for _ in self._left_over.pop():
                await asyncio.sleep(0)

    async def read_totals(self, organization_id: int) -> Mapping[str, int]:
        """What each level of an organization has spent, from ingestion's totals. Raises DatabaseAway."""

        async def read(connection: Connection) -> Mapping[str, int]:
            async with site(connection):
                return (await spent_async(connection, [organization_id]))[organization_id]

        return await self._totals_line.use(read, within_s=READ_TOTALS_S)

    async def find_key(self, fingerprints: Sequence[bytes]) -> KeyState | None:
        """A key that memory does not know, looked up once. None: it does not exist. Raises DatabaseAway."""
        return await self.look_up.find(fingerprints)

    async def _find(self, fingerprints: Sequence[bytes]) -> Sequence[KeyState]:
        """Those of these keys that exist. Where one does, memory is behind: it catches up first, so that the call
        also finds what was changed together with its key.
        """

        async def read(connection: Connection) -> Sequence[KeyState]:
            async with site(connection):
                found = await self.reading.keys(connection, fingerprints)
            if not any(not key.revoked for key in found):
                return found
            await self._refresh(connection)
            return [self.snapshot.key(key.fingerprint) or key for key in found]

        return await self._look_up_line.use(read, within_s=LOOK_UP_S)


def _is_sure(look: Look, since: Look) -> bool:
    """Pure. Whether the log tells all that has changed in between: it was not cut, and is that of the same server."""
    return look.server == since.server and look.horizon >= since.horizon and look.at - since.at < CHANGES_KEPT
