"""Closes the books of processes that were killed: their journals, taken over by whoever gets the lock.

Every close line is shipped (again: ingestion is idempotent by call id) and settled; an open line without a close
becomes a record `interrupted`, amount 0, with the cost that its input is estimated to have had, and its hold is given
back. Then the files are deleted.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from billing.records import CallRecord
from relay.metering.journal import OpenLine, read_segment

__all__ = ["interrupted_record", "take_over"]

log = logging.getLogger(__name__)

BATCH = 500
# tokens x rate is in 10^-18 of the currency
_RATE_PER_NANO = 10**9

Ship = Callable[[Sequence[CallRecord]], Awaitable[None]]
Settle = Callable[[int, str, int], None]


def interrupted_record(line: OpenLine) -> CallRecord:
    """Pure. The record of a call whose process ended before it did."""
    return CallRecord(
        id=line.id,
        organization_id=line.organization_id,
        key_id=line.key_id,
        member_id=line.member_id,
        task_id=line.task_id,
        client=line.client,
        endpoint=line.endpoint,
        protocol=line.protocol,
        model=line.model,
        stream=line.stream,
        status="interrupted",
        http_status=0,
        error_kind="process_killed",
        uncached_input_tokens=line.input_tokens,
        usage_source="estimated",
        price_version=line.price_version,
        currency=line.currency,
        cost_nano=line.input_tokens * line.input_rate // _RATE_PER_NANO,
    )


async def take_over(folder: Path, ship: Ship, settle: Settle) -> int:
    """Take over every journal in `folder` whose process is dead; returns how many records were shipped.

    Raises what `ship` raises when the database is away: then everything is left as it was, for the next time.
    """
    shipped = 0
    for lock_path in await asyncio.to_thread(_found, folder, "*.lock"):
        fd = _lock_of_the_dead(lock_path)
        if fd is None:
            continue
        try:
            shipped += await _close_books(folder, lock_path, ship, settle)
        finally:
            os.close(fd)
    return shipped


def _found(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _lock_of_the_dead(path: Path) -> int | None:
    """The lock of a process that is no more, now ours; None while it lives, or if another was quicker."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.fstat(fd).st_ino == path.stat().st_ino:
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None


async def _close_books(folder: Path, lock_path: Path, ship: Ship, settle: Settle) -> int:
    """Segment by segment, for a journal may have grown large. Deleted at the end only: a line that opens a call without
    an end is in any of them.
    """
    paths = await asyncio.to_thread(_found, folder, f"{lock_path.stem}.*.journal")
    opens: dict[str, OpenLine] = {}
    closed = 0
    for path in paths:
        closed += await _close_segment(path, opens, ship, settle)
    await _hand_over([interrupted_record(line) for line in opens.values()], ship, settle)
    await asyncio.to_thread(_delete, [*paths, lock_path])
    if closed or opens:
        log.info("took over %d closed and %d interrupted calls of %s", closed, len(opens), lock_path.stem)
    return closed + len(opens)


async def _close_segment(path: Path, opens: dict[str, OpenLine], ship: Ship, settle: Settle) -> int:
    """Hand over the closed calls of one segment, and keep `opens` to those that have no close so far."""
    found, closes = await asyncio.to_thread(read_segment, path)
    opens.update((line.id, line) for line in found)
    for record in closes:
        opens.pop(record.id, None)
    await _hand_over(closes, ship, settle)
    return len(closes)


async def _hand_over(records: Sequence[CallRecord], ship: Ship, settle: Settle) -> None:
    for first in range(0, len(records), BATCH):
        batch = records[first : first + BATCH]
        await ship(batch)
        for record in batch:
            settle(record.organization_id, record.id, record.amount_nano)
