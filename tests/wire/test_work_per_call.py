"""What one call makes the machine do, counted and not timed: system calls, bytes, threads, queries.

The kernel counts reads and writes of the relay process (/proc/PID/io), context switches of its threads, and PostgreSQL
its transactions. The figures are committed here: who makes a call do more has to change them, and say why.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest
from django.db import connection

from tests.fakes.practice_process import PracticeProcess
from tests.wire.world import Tenant, World

pytestmark = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts what Linux counts")

CALLS = 300
CHUNKS = 1_000
# One after the other on one connection, so nothing is batched: to the client, to the upstream, to the store (hold and
# settling), to the journal (open and close). What is above six is the shipping of records, and timers.
WRITES_PER_CALL = 6.5
# From the client, from the upstream, twice from the store; some of them are woken for nothing.
READS_PER_CALL = 5.0
# Seen: 2,960 for the smallest of calls, of which the journal and the database take 2,000.
BYTES_WRITTEN_PER_CALL = 3_400
# A chunk that comes alone leaves alone. Seen: 102 writes, 269 bytes with their frames.
WRITES_PER_100_CHUNKS = 106
BYTES_WRITTEN_PER_CHUNK = 300
# The journal is flushed to the disk in a thread, twenty times a second, and in no other way does a call meet a thread.
SWITCHES_PER_CALL = 0.5
# Records are shipped five times a second and changes looked for; no call asks the database.
TRANSACTIONS_PER_CALL = 0.3


@dataclass
class Work:
    reads: int
    writes: int
    bytes_written: int
    switches: int
    transactions: int

    def per(self, number: int) -> "dict[str, float]":
        return {name: value / number for name, value in vars(self).items()}


def counted(pid: int) -> Work:
    """All that the process, and all that the database, has done so far."""
    time.sleep(1.2)  # PostgreSQL tells its figures once a second
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    switches = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        if thread.name != str(pid):
            status = (thread / "status").read_text()
            switches += int(status.partition("voluntary_ctxt_switches:")[2].split()[0])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )
        (transactions,) = cursor.fetchone()
    return Work(int(io["syscr"]), int(io["syscw"]), int(io["wchar"]), switches, transactions)


def done(pid: int, work: Callable[[], None]) -> Work:
    before = counted(pid)
    work()
    after = counted(pid)
    return Work(*(new - old for new, old in zip(vars(after).values(), vars(before).values(), strict=True)))


class Caller:
    """Calls one after the other, on one connection that stays."""

    def __init__(self, tenant: Tenant) -> None:
        self._headers = {**tenant.auth, "content-type": "application/json"}
        self._tenant = tenant
        self._connection = HTTPConnection("127.0.0.1", tenant.world.relay.port, timeout=30)

    def call(self, text: str, **fields: object) -> bytes:
        body = self._tenant.body(text, **fields)
        self._connection.request("POST", "/v1/chat/completions", body, self._headers)
        answer = self._connection.getresponse()
        said = answer.read()
        assert answer.status == 200
        return said


@pytest.fixture
def caller(make_relay: Callable[..., World], practice: PracticeProcess) -> Iterator[Caller]:
    made = Caller(make_relay().tenant(practice.url))
    for _ in range(20):
        made.call("@practice tokens=1,ttft_ms=0@")
    yield made
    made._connection.close()


def test_a_plain_call(caller: Caller) -> None:
    pid = caller._tenant.world.relay.pid

    def calls() -> None:
        for _ in range(CALLS):
            assert json.loads(caller.call("@practice tokens=1,ttft_ms=0@"))["choices"]

    work = done(pid, calls).per(CALLS)
    assert work["writes"] <= WRITES_PER_CALL, work
    assert work["reads"] <= READS_PER_CALL, work
    assert work["bytes_written"] <= BYTES_WRITTEN_PER_CALL, work
    assert work["switches"] <= SWITCHES_PER_CALL, work
    assert work["transactions"] <= TRANSACTIONS_PER_CALL, work


def test_a_hundred_chunks(caller: Caller) -> None:
    pid = caller._tenant.world.relay.pid

    def stream() -> None:
        said = caller.call(f"@practice tokens={CHUNKS},gap_ms=2,ttft_ms=1@", stream=True)
        assert said.count(b"data: ") >= CHUNKS

    work = done(pid, stream)
    assert work.writes * 100 / CHUNKS <= WRITES_PER_100_CHUNKS, work
    assert work.bytes_written / CHUNKS <= BYTES_WRITTEN_PER_CHUNK, work
    assert work.transactions <= CHUNKS / 10, work
