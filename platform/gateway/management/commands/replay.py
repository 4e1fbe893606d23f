"""`manage.py replay DIR`: brings into the books what a machine that stays away had journalled.

DIR is that machine's journal folder (`VAR_DIR/journal`), or a copy of it. What is in the database already
changes nothing, so a folder may be replayed again. Records that were refused before are tried once more.
"""

import asyncio
import os
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from django.core.management.base import BaseCommand, CommandError

from billing.ingest import IngestResult, ingest
from billing.records import CallRecord
from gateway import database, env
from relay.admission.permit import PERMIT_SCRIPTS, Permits, StoreError, StoreUnavailable
from relay.admission.rebuild import began_at, forget_if_younger
from relay.admission.store import Store
from relay.metering.journal import read_segment
from relay.metering.takeover import take_over

__all__ = ["Command"]

REFUSED = "rejected.journal"
SETTLE_AT_ONCE = 500


class Command(BaseCommand):
    help = "Record the calls that lie in the journal folder of a machine that does not come back."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="the journal folder, or a copy of it")

    def handle(self, *args: Any, **options: Any) -> None:
        folder: Path = options["folder"]
        if not folder.is_dir():
            raise CommandError(f"{folder} is no folder")
        try:
            replay = asyncio.run(_replay(folder))
        except (psycopg.OperationalError, TimeoutError) as exc:
            raise CommandError(f"the database does not answer, nothing is lost: {exc}", returncode=3) from exc
        result = replay.result
        for rejected in result.rejected:
            self.stderr.write(f"refused, kept in {folder / REFUSED}: {rejected.record.id}: {rejected.reason}")
        self.stdout.write(
            f"{result.inserted} calls recorded, {result.duplicates} were known, {len(result.rejected)} refused"
        )
        if not replay.settled:
            self.stderr.write("the limit store does not answer: it takes the amounts from the records later")


class _Replay:
    """The two hands that `take_over` needs, and what they did."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], permits: Permits) -> None:
        self._connection = connection
        self._permits = permits
        self._amounts: list[tuple[int, str, int]] = []
        self._known: set[str] = set()  # calls that were in the books before, as far as that was told
        self.result = IngestResult()
        self.settled = True

    async def ship(self, records: Sequence[CallRecord]) -> None:
        found = await ingest(self._connection, records)
        self.result.inserted += found.inserted
        self.result.duplicates += found.duplicates
        self.result.rejected += found.rejected
        if not found.inserted:
            self._known |= {record.id for record in records}

    def settle(self, organization_id: int, call_id: str, amount_nano: int) -> None:
        self._amounts.append((organization_id, call_id, amount_nano))

    async def settle_all(self, store: Store) -> None:
        """Tell the limit counters. Where they are lost they are rebuilt from the records anyway; where they were
        rebuilt without these calls, they are once more.
        """
        oldest: dict[int, float] = {}
        for first in range(0, len(self._amounts), SETTLE_AT_ONCE):
            some = self._amounts[first : first + SETTLE_AT_ONCE]
            outcomes = await asyncio.gather(
                *(self._permits.settle(*amount) for amount in some), return_exceptions=True
            )
            unexpected = [
                o for o in outcomes if isinstance(o, BaseException) and not isinstance(o, StoreError)
            ]
            if unexpected:
                raise unexpected[0]
            if any(isinstance(outcome, StoreUnavailable) for outcome in outcomes):
                self.settled = False
                return
            for (organization_id, call_id, _), outcome in zip(some, outcomes, strict=True):
                if outcome is False and call_id not in self._known:
                    began = began_at(call_id)
                    oldest[organization_id] = min(began, oldest.get(organization_id, began))
        try:
            for organization_id, began in oldest.items():
                await forget_if_younger(store, organization_id, began)
        except StoreUnavailable:
            self.settled = False


async def _replay(folder: Path) -> _Replay:
    conninfo = database.conninfo(env.database_url(), role="relay_ingest", application="yizhan replay")
    async with AsyncExitStack() as stack:
        connection = await psycopg.AsyncConnection.connect(
            psycopg.conninfo.make_conninfo(**conninfo), autocommit=True
        )
        await stack.enter_async_context(connection)
        store = Store(env.limits_redis_url(), scripts=PERMIT_SCRIPTS)
        await store.open()
        stack.push_async_callback(store.close)
        replay = _Replay(connection, Permits(store))
        refused_before = await asyncio.to_thread(_prepare, folder)
        await take_over(folder, replay.ship, replay.settle)
        await _retry_refused(refused_before, replay)
        await asyncio.to_thread(_keep_refused, folder, refused_before, replay.result)
        await replay.settle_all(store)
        return replay


def _prepare(folder: Path) -> list[Path]:
    """Give each journal a lock file if its copy came without one; set aside what was refused before.

    Returns the files set aside, those of a replay that was cut off included.
    """
    for path in folder.glob("*.*.journal"):
        (folder / f"{path.name.split('.')[0]}.lock").touch(mode=0o600)
    if (folder / REFUSED).exists():
        # Renamed first: a relay process may be writing to it.
        (folder / REFUSED).rename(folder / f"retry-{os.urandom(6).hex()}.refused")
    return sorted(folder.glob("retry-*.refused"))


async def _retry_refused(files: Sequence[Path], replay: _Replay) -> None:
    for path in files:
        _, records = await asyncio.to_thread(read_segment, path)
        await replay.ship(records)
        for record in records:
            replay.settle(record.organization_id, record.id, record.amount_nano)


def _keep_refused(folder: Path, retried: Sequence[Path], result: IngestResult) -> None:
    """Write down what is refused still, then forget the files it came from."""
    if result.rejected:
        with (folder / REFUSED).open("ab") as file:
            for rejected in result.rejected:
                file.write(b"c " + msgspec.json.encode(rejected.record) + b"\n")
    for path in retried:
        path.unlink(missing_ok=True)
