"""kill -9 under load: every call that got its last byte is recorded once, and no hold is left over."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.wire.world import Tenant, World, eventually

THREADS = 12


class Load:
    """Callers that go on until they are told to stop. `answered` are the calls that got their last byte."""

    def __init__(self, tenant: Tenant) -> None:
        self.answered: list[Answer] = []
        self.broken = 0
        self._tenant = tenant
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(number,)) for number in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _call(self, number: int) -> None:
        while not self._stop.is_set():
            try:
                if number % 3:
                    answer = self._tenant.stream("@practice tokens=12,gap_ms=6@")
                else:
                    answer = self._tenant.ask("Hello")
            except (ConnectionError, TimeoutError):
                self.broken += 1
                self._stop.wait(0.05)
            else:
                self.answered.append(answer)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


def wait_for(load: Load, more: int) -> None:
    wanted = len(load.answered) + more
    eventually(lambda: len(load.answered) >= wanted, within_s=20)


def check(tenant: Tenant, load: Load) -> None:
    ended = [answer for answer in load.answered if answer.status == 200]
    assert {answer.status for answer in load.answered} == {200}
    assert all(answer.is_done or "application/json" in answer.headers["content-type"] for answer in ended)
    eventually(lambda: tenant.use()[1:] == (0, 0), within_s=15)
    wanted = {answer.call_id for answer in ended}
    eventually(lambda: wanted <= {str(record.id) for record in tenant.records()}, within_s=10)
    records = tenant.check_books()
    found = Counter(str(record.id) for record in records)
    assert {found[call_id] for call_id in wanted} == {1}
    by_id = {str(record.id): record for record in records}
    assert {by_id[call_id].status for call_id in wanted} == {"ok"}
    others = [record for record in records if str(record.id) not in wanted]
    # Calls whose last byte was on its way, or whose books were closed by whoever took the journal over.
    assert {record.status for record in others} <= {"ok", "interrupted", "client_gone"}
    interrupted = [record for record in others if record.status == "interrupted"]
    assert interrupted
    assert {(record.amount_nano, record.error_kind) for record in interrupted} == {(0, "process_killed")}
    assert all(record.cost_nano > 0 for record in interrupted)


def test_of_two_processes_one_after_the_other_is_killed(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay(workers=2)
    tenant = world.tenant(practice.url)
    load = Load(tenant)
    try:
        for _ in range(2):
            wait_for(load, 40)
            os.kill(world.relay.processes[0].pid, signal.SIGKILL)
            wait_for(load, 40)
            world.relay.start()
    finally:
        load.stop()
    assert load.broken
    check(tenant, load)
    locks = {int(path.name.partition("-")[0]) for path in (world.relay.var_dir / "journal").glob("*.lock")}
    assert locks <= {process.pid for process in world.relay.processes}


def test_the_only_process_is_killed_and_its_successor_closes_its_books(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay()
    tenant = world.tenant(practice.url)
    load = Load(tenant)
    try:
        for _ in range(2):
            wait_for(load, 40)
            world.relay.kill()
            world.relay.start()
        wait_for(load, 40)
    finally:
        load.stop()
    assert load.broken
    check(tenant, load)


def test_a_broken_line_at_the_end_of_a_journal_hides_nothing(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay()
    tenant = world.tenant(practice.url)
    client = tenant.start("@practice tokens=500,gap_ms=20@")
    client.read_head()
    eventually(lambda: tenant.use()[2] == 1)
    world.relay.kill()
    client.close()
    (segment,) = (world.relay.var_dir / "journal").glob("*.journal")
    with segment.open("ab") as file:
        file.write(b'c {"id":"01a2')
    world.relay.start()
    (record,) = tenant.check_books(1)
    assert record.status == "interrupted"
    assert time.time() - record.created_at.timestamp() < 60
