"""The journal of one process: two lines per call that survive a kill, on the way to the database.

    o {"id":…,"hold_nano":…}     right before the hold is taken
    c {"id":…,"amount_nano":…}   before the last bytes of the answer are handed to the server

A close is one `write()`, which outlives the process, and so are the opens of one turn of the event loop together;
`sync` flushes a group of them to the disk (a loss of power may cost what lies between two groups). Lines go to segments
`<process>.<n>.journal`; a segment is deleted when every close in it is in the database and every open in it has its
close. `<process>.lock` is held while the process lives: whoever gets the lock of a dead one takes its segments over
(`relay.metering.takeover`).
"""

import errno
import fcntl
import logging
import os
import uuid
from collections import deque
from itertools import islice
from pathlib import Path

import msgspec

from billing.fitting import encode_record
from billing.records import CallRecord

__all__ = ["LIMIT_BYTES", "Journal", "JournalFull", "OpenLine", "read_segment"]

log = logging.getLogger(__name__)

SEGMENT_BYTES = 4 * 1024 * 1024
LIMIT_BYTES = 256 * 1024 * 1024


class JournalFull(Exception):
    """The journal has grown to its limit, because the database has been away for long."""


class OpenLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known before the hold is taken: enough to close the books of a call whose process was killed.

    `input_rate` is the list price of a million input tokens x 10^12 (`billing.pricing.Rates.input`).
    """

    id: str
    organization_id: int
    key_id: int
    member_id: int | None = None
    endpoint: str = ""
    protocol: str = ""
    client: str = ""
    model: str = ""
    stream: bool = False
    task_id: str = ""
    price_version: int | None = None
    currency: str = ""
    hold_nano: int = 0
    input_tokens: int = 0
    input_rate: int = 0


class _Segment:
    """One file, with what still keeps it: how many calls are open, and how many closes are not in the database.

    `is_torn`: the disk had no room for all of the last line, so the next one has to begin anew.
    """

    __slots__ = ("fd", "is_torn", "opens", "path", "size", "unshipped")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = 0
        self.is_torn = False
        self.opens = 0
        self.unshipped = 0


class Journal:
    """Appends lines, and keeps the closes in memory until they are shipped. Not thread-safe but for `sync`."""

    def __init__(self, folder: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._limit = limit_bytes
        self.name = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._lock_path = folder / f"{self.name}.lock"
        self._lock_fd = _make_locked(self._lock_path)
        self._encoder = msgspec.json.Encoder()
        self._number = 0
        self._segments: list[_Segment] = []
        self._open_in: dict[str, _Segment] = {}
        self._pending: dict[str, OpenLine] = {}
        self._queue: deque[tuple[bytes, _Segment]] = deque()
        self.queued_bytes = 0
        self.dirty = False
        self._current = self._next_segment()

    @property
    def open_calls(self) -> int:
        return len(self._open_in)

    @property
    def queued(self) -> int:
        """Closes that wait for the database."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        return self.queued_bytes >= self._limit

    def open(self, line: OpenLine) -> None:
        """Write the open line. Raises JournalFull, OSError (disk): then the call must be refused."""
        if self.queued_bytes >= self._limit:
            raise JournalFull
        segment = self._write(b"o %b\n" % self._encoder.encode(line))
        segment.opens += 1
        self._open_in[line.id] = segment

    def open_soon(self, line: OpenLine) -> None:
        """As `open`, with the next `flush`. Raises JournalFull."""
        if self.queued_bytes >= self._limit:
            raise JournalFull
        self._pending[line.id] = line

    def flush(self) -> None:
        """Write the lines of `open_soon`, all at once. Raises OSError: then none is written, and their calls must be
        refused.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        encode = self._encoder.encode
        segment = self._write(b"".join([b"o %b\n" % encode(line) for line in pending.values()]))
        segment.opens += len(pending)
        for call_id in pending:
            self._open_in[call_id] = segment

    def close(self, record: CallRecord) -> None:
        """Write the close line and queue the record. A disk that fails is logged; the record is queued all the same."""
        data = encode_record(record)
        try:
            segment = self._write(b"c %b\n" % data)
        except OSError as exc:
            log.error("the journal cannot be written: %s", exc.strerror)
            segment = self._current
        segment.unshipped += 1
        opened = self._open_in.pop(record.id, None)
        if opened is not None:
            opened.opens -= 1
        elif self._pending:
            self._pending.pop(record.id, None)  # over before it began: a close needs no open
        self._queue.append((data, segment))
        self.queued_bytes += len(data)

    def batch(self, most: int) -> list[bytes]:
        """The oldest closes that wait, as JSON, without taking them off."""
        return [data for data, _ in islice(self._queue, most)]

    def shipped(self, count: int) -> None:
        """The oldest `count` closes are in the database: forget them, and delete the segments that nothing keeps."""
        for _ in range(count):
            data, segment = self._queue.popleft()
            segment.unshipped -= 1
            self.queued_bytes -= len(data)
        self._cut()

    def sync(self) -> None:
        """Flush what was written to the disk; blocks, so it is called in a thread."""
        self.dirty = False
        os.fdatasync(self._current.fd)

    def close_files(self) -> None:
        """At the end of the process. Files stay if something in them is not in the database yet."""
        for segment in self._segments:
            os.close(segment.fd)
            if not segment.opens and not segment.unshipped:
                segment.path.unlink(missing_ok=True)
        if not any(segment.opens or segment.unshipped for segment in self._segments):
            self._lock_path.unlink(missing_ok=True)
        os.close(self._lock_fd)

    def _write(self, line: bytes) -> _Segment:
        segment = self._current
        if segment.size >= SEGMENT_BYTES:
            segment = self._current = self._next_segment()
            self._cut()
        if segment.is_torn:
            line = b"\n" + line
        written = os.write(segment.fd, line)
        segment.size += written
        segment.is_torn = written < len(line)
        self.dirty = True
        if segment.is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return segment

    def _next_segment(self) -> _Segment:
        self._number += 1
        segment = _Segment(self._folder / f"{self.name}.{self._number:06d}.journal")
        self._segments.append(segment)
        return segment

    def _cut(self) -> None:
        for segment in [s for s in self._segments if not s.opens and not s.unshipped]:
            if segment is self._current:
                if segment.size > SEGMENT_BYTES // 4:
                    os.ftruncate(segment.fd, 0)
                    segment.size = 0
                continue
            os.close(segment.fd)
            segment.path.unlink(missing_ok=True)
            self._segments.remove(segment)


def _make_locked(path: Path) -> int:
    """A lock file that is ours from the moment it has its name. Until then nobody looks for it: whoever takes over the
    journals of the dead would find it without a holder, and delete it.
    """
    new = path.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    new.rename(path)
    return fd


def read_segment(path: Path) -> tuple[list[OpenLine], list[CallRecord]]:
    """The lines of one segment. A line without its end (a loss of power) or unreadable is left out and logged."""
    opens: list[OpenLine] = []
    closes: list[CallRecord] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.startswith(b"o ") and line.endswith(b"\n"):
                    opens.append(msgspec.json.decode(line[2:], type=OpenLine))
                elif line.startswith(b"c ") and line.endswith(b"\n"):
                    closes.append(msgspec.json.decode(line[2:], type=CallRecord))
                else:
                    log.warning("journal %s: line %d is cut", path.name, number)
            except msgspec.MsgspecError:
                log.exception("journal %s: line %d cannot be read", path.name, number)
    return opens, closes
