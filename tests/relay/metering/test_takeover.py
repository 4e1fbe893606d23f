"""The journals of the dead: their books are closed once, by one of the living, and not at all while they live."""

import asyncio
import fcntl
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from billing.records import CallRecord
from relay.metering.journal import Journal
from relay.metering.takeover import interrupted_record, take_over
from tests.relay.metering.test_journal import open_line, record


class Ledger:
    """Where records and settlings go. `away`: nothing can be shipped."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.settled: dict[str, int] = {}
        self.away = False

    async def ship(self, records: Sequence[CallRecord]) -> None:
        if self.away:
            raise OSError("away")
        await asyncio.sleep(0)
        self.records += records

    def settle(self, organization_id: int, call_id: str, amount_nano: int) -> None:
        assert call_id in {one.id for one in self.records}
        self.settled[call_id] = amount_nano


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def die(journal: Journal) -> None:
    """Let go of the lock as the kernel does for a killed process; the files stay."""
    fcntl.flock(journal._lock_fd, fcntl.LOCK_UN)


async def test_it_works(tmp_path: Path) -> None:
    journal, ledger = Journal(tmp_path), Ledger()
    ended, cut = (
        open_line(),
        open_line(model="m", input_tokens=100, input_rate=2 * 10**12, price_version=3, currency="USD"),
    )
    journal.open(ended)
    journal.open(cut)
    journal.close(record(ended.id, amount_nano=7))
    die(journal)
    assert await take_over(tmp_path, ledger.ship, ledger.settle) == 2
    assert ledger.settled == {ended.id: 7, cut.id: 0}
    interrupted = ledger.records[1]
    assert (interrupted.id, interrupted.status, interrupted.error_kind) == (
        cut.id,
        "interrupted",
        "process_killed",
    )
    assert (interrupted.amount_nano, interrupted.cost_nano, interrupted.usage_source) == (
        0,
        200_000,
        "estimated",
    )
    assert names_in(tmp_path) == []
    assert await take_over(tmp_path, ledger.ship, ledger.settle) == 0


async def test_the_living_are_left_alone(tmp_path: Path) -> None:
    journal, ledger = Journal(tmp_path), Ledger()
    journal.close(record())
    assert await take_over(tmp_path, ledger.ship, ledger.settle) == 0
    assert ledger.records == []
    assert len(names_in(tmp_path)) == 2
    journal.close_files()


async def test_a_journal_is_never_found_without_its_holder(tmp_path: Path) -> None:
    """Those who look for the dead may come at any moment of a birth."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            asyncio.run(take_over(tmp_path, Ledger().ship, Ledger().settle))

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    journals = [Journal(tmp_path) for _ in range(300)]
    is_over.set()
    for watcher in watchers:
        watcher.join()
    assert len([name for name in names_in(tmp_path) if name.endswith(".lock")]) == len(journals)
    for journal in journals:
        journal.close_files()


async def test_with_the_database_away_everything_stays_for_the_next_time(tmp_path: Path) -> None:
    journal, ledger = Journal(tmp_path), Ledger()
    journal.close(record())
    die(journal)
    ledger.away = True
    with pytest.raises(OSError, match="away"):
        await take_over(tmp_path, ledger.ship, ledger.settle)
    assert len(names_in(tmp_path)) == 2
    ledger.away = False
    assert await take_over(tmp_path, ledger.ship, ledger.settle) == 1


async def test_two_who_look_at_once_do_it_once(tmp_path: Path) -> None:
    ledger = Ledger()
    for _ in range(3):
        journal = Journal(tmp_path)
        journal.close(record())
        die(journal)
    counts = await asyncio.gather(*(take_over(tmp_path, ledger.ship, ledger.settle) for _ in range(4)))
    assert sum(counts) == len(ledger.records) == 3
    assert len({one.id for one in ledger.records}) == 3


async def test_many_calls_go_in_batches(tmp_path: Path) -> None:
    journal, ledger = Journal(tmp_path), Ledger()
    for _ in range(1203):
        journal.open(open_line())
    die(journal)
    assert await take_over(tmp_path, ledger.ship, ledger.settle) == 1203
    assert len(ledger.settled) == 1203


async def test_a_journal_of_many_segments_is_not_in_memory_as_a_whole(tmp_path: Path) -> None:
    """And a call whose lines lie in different segments is one call."""
    journal = Journal(tmp_path)
    opened = [open_line() for _ in range(2)]
    for line in opened:
        journal.open(line)
    for _ in range(8_000):
        journal.close(record(task_id="x" * 2_000))
    journal.close(record(opened[0].id, amount_nano=7))
    assert len(names_in(tmp_path)) >= 4
    whole = 8_000 * 2_000
    die(journal)
    seen: dict[str, str] = {}

    async def ship(records: Sequence[CallRecord]) -> None:
        seen.update((one.id, one.status) for one in records)

    tracemalloc.start()
    assert await take_over(tmp_path, ship, lambda *_: None) == 8_002
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < whole / 2
    assert [seen[line.id] for line in opened] == ["ok", "interrupted"]
    assert names_in(tmp_path) == []


async def test_what_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rejected.journal").write_bytes(b"c {}\n")
    (tmp_path / "note.txt").write_text("x")
    assert await take_over(tmp_path, Ledger().ship, Ledger().settle) == 0
    assert len(names_in(tmp_path)) == 2


def test_an_interrupted_call_is_shown_as_what_it_was() -> None:
    line = open_line(
        model="m", stream=True, task_id="t", client="curl", endpoint="/e", protocol="openai", member_id=4
    )
    made = interrupted_record(line)
    for name in (
        "id",
        "organization_id",
        "key_id",
        "member_id",
        "model",
        "stream",
        "task_id",
        "client",
        "endpoint",
    ):
        assert getattr(made, name) == getattr(line, name)
    assert made.http_status == 0
