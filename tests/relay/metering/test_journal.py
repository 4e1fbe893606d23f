"""Two lines per call that survive a kill; files live exactly as long as something in them is needed."""

import fcntl
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from billing.records import CallRecord
from relay.call_id import new_call_id
from relay.metering import journal as journal_module
from relay.metering.journal import Journal, JournalFull, OpenLine, read_segment


@pytest.fixture
def make_journal(tmp_path: Path) -> Iterator[Callable[..., Journal]]:
    made: list[Journal] = []

    def make(**options: int) -> Journal:
        made.append(Journal(tmp_path / "journal", **options))
        return made[-1]

    yield make
    for one in made:
        for segment in one._segments:
            os.close(segment.fd)
        os.close(one._lock_fd)


@pytest.fixture
def journal(make_journal: Callable[..., Journal]) -> Journal:
    return make_journal()


def open_line(call_id: str | None = None, **fields: object) -> OpenLine:
    return OpenLine(id=call_id or new_call_id(), organization_id=1, key_id=2, **fields)  # type: ignore[arg-type]


def record(call_id: str | None = None, **fields: object) -> CallRecord:
    return CallRecord(id=call_id or new_call_id(), organization_id=1, key_id=2, **fields)  # type: ignore[arg-type]


def segments(journal: Journal) -> list[Path]:
    return sorted(journal._folder.glob(f"{journal.name}.*.journal"))


def waiting(journal: Journal, most: int) -> list[CallRecord]:
    return [msgspec.json.decode(line, type=CallRecord) for line in journal.batch(most)]


def read_all(journal: Journal) -> tuple[list[OpenLine], list[CallRecord]]:
    opens: list[OpenLine] = []
    closes: list[CallRecord] = []
    for path in segments(journal):
        found, closed = read_segment(path)
        opens += found
        closes += closed
    return opens, closes


def test_it_works(journal: Journal) -> None:
    line = open_line(model="驿站", hold_nano=5, input_rate=7)
    closed = record(line.id, amount_nano=3, attempts=[{"upstream": "u", "ms": 1.5}], stages={"auth": 0.25})
    journal.open(line)
    assert (journal.open_calls, journal.queued) == (1, 0)
    journal.close(closed)
    assert (journal.open_calls, journal.queued) == (0, 1)
    assert waiting(journal, 10) == [closed]
    assert read_all(journal) == ([line], [closed])


def test_lines_are_there_without_a_flush_and_private(journal: Journal) -> None:
    journal.open(open_line())
    (path,) = segments(journal)
    assert path.stat().st_size > 0
    assert path.stat().st_mode & 0o777 == 0o600
    journal.sync()
    assert not journal.dirty


def test_the_lock_is_held_while_the_journal_lives(journal: Journal) -> None:
    with (journal._folder / f"{journal.name}.lock").open("w") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_batches_are_the_oldest_first(journal: Journal) -> None:
    records = [record() for _ in range(5)]
    for one in records:
        journal.close(one)
    assert waiting(journal, 3) == records[:3]
    journal.shipped(3)
    assert waiting(journal, 3) == records[3:]
    assert journal.queued == 2
    journal.shipped(2)
    assert (journal.queued, journal.queued_bytes) == (0, 0)


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 400)


def test_a_segment_goes_when_all_of_it_is_shipped_and_closed(small_segments: None, journal: Journal) -> None:
    first = open_line()
    journal.open(first)
    for _ in range(20):
        line = open_line()
        journal.open(line)
        journal.close(record(line.id))
    assert len(segments(journal)) > 3
    journal.shipped(20)
    # The first call is still open: its segment stays, and so does the one that is written to.
    assert len(segments(journal)) == 2
    assert read_segment(segments(journal)[0])[0][0].id == first.id
    journal.close(record(first.id))
    journal.shipped(1)
    assert len(segments(journal)) == 1


def test_a_current_segment_with_nothing_in_need_of_it_is_emptied(
    small_segments: None, journal: Journal
) -> None:
    line = open_line()
    journal.open(line)
    journal.close(record(line.id))
    (path,) = segments(journal)
    assert path.stat().st_size > 100
    journal.shipped(1)
    assert path.stat().st_size == 0
    journal.close(last := record())
    assert read_all(journal) == ([], [last])


def test_a_full_journal_takes_no_new_calls_but_every_close(make_journal: Callable[..., Journal]) -> None:
    journal = make_journal(limit_bytes=300)
    line = open_line()
    journal.open(line)
    while not journal.is_full:
        journal.close(record())
    with pytest.raises(JournalFull):
        journal.open(open_line())
    journal.close(record(line.id))
    count = journal.queued
    journal.shipped(count)
    journal.open(open_line())


@contextmanager
def no_room_beyond(path: Path, more_bytes: int) -> Iterator[None]:
    """Files of this process cannot grow beyond the present size of this one and so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + more_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 10])
def test_a_disk_without_room_refuses_calls_and_loses_no_record(journal: Journal, room: int) -> None:
    open_before = open_line()
    journal.open(open_before)
    (path,) = segments(journal)
    with no_room_beyond(path, room):
        with pytest.raises(OSError, match=r"."):
            journal.open(open_line())
        journal.close(lost := record(open_before.id))
    # It is still shipped from memory, and what is written afterwards can be read.
    assert waiting(journal, 9) == [lost]
    assert journal.open_calls == 0
    line = open_line()
    journal.open(line)
    journal.close(record(line.id))
    opens, closes = read_all(journal)
    assert [found.id for found in opens] == [open_before.id, line.id]
    assert [found.id for found in closes] == [line.id]


def test_opens_of_one_turn_are_one_write(journal: Journal) -> None:
    lines = [open_line() for _ in range(3)]
    for line in lines:
        journal.open_soon(line)
    assert (read_all(journal), journal.open_calls) == (([], []), 0)
    journal.flush()
    journal.flush()
    assert (read_all(journal), journal.open_calls) == ((lines, []), 3)
    journal.close(record(lines[1].id))
    assert journal.open_calls == 2


def test_a_call_that_is_over_before_its_open_was_written_needs_none(journal: Journal) -> None:
    gone, other = open_line(), open_line()
    journal.open_soon(gone)
    journal.open_soon(other)
    journal.close(closed := record(gone.id))
    journal.flush()
    assert read_all(journal) == ([other], [closed])
    assert journal.open_calls == 1


def test_opens_that_cannot_be_written_are_none(journal: Journal) -> None:
    journal.open(before := open_line())
    journal.open_soon(open_line())
    (path,) = segments(journal)
    with no_room_beyond(path, 0), pytest.raises(OSError, match=r"."):
        journal.flush()
    journal.flush()
    assert (read_all(journal)[0], journal.open_calls) == ([before], 1)


def test_files_go_at_the_end_if_nothing_is_left_in_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close(record())
    journal.shipped(1)
    journal.close_files()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["open call", "record"])
def test_files_stay_at_the_end_if_something_is_left(tmp_path: Path, left: str) -> None:
    journal = Journal(tmp_path)
    if left == "record":
        journal.close(record())
    else:
        journal.open(open_line())
    journal.close_files()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".journal", ".lock"]


def test_broken_lines_hide_no_others(tmp_path: Path) -> None:
    first, last = open_line(), record()
    path = tmp_path / "x.journal"
    encode = journal_module.msgspec.json.encode
    path.write_bytes(
        b"o " + encode(first) + b"\n"
        b'c {"id":"01a2\n'
        b"\xff\xfe\x00\n"
        b"o {}\n"
        b"\n"
        b"x " + encode(last) + b"\n"
        b"c " + encode(last) + b"\n"
        b"c " + encode(record())
    )
    assert read_segment(path) == ([first], [last])


def test_lines_of_an_older_version_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    path.write_bytes(
        b'o {"id":"a","organization_id":1,"key_id":2,"new_field":[1]}\nc {"id":"a","organization_id":1,"key_id":2}\n'
    )
    opens, closes = read_segment(path)
    assert (opens[0].id, opens[0].hold_nano, closes[0].status) == ("a", 0, "ok")
