"""Limits are one for all processes, and a killed process gives back what it held."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from relay.admission.counters import initialise_counters, read_counters
from relay.admission.limits import Use
from relay.admission.sweep import sweep_holds
from tests.relay.admission.valkey_server import ValkeyServer

_ROOT = Path(__file__).parents[3]
_HOLD = 8_192 * 16_000


@contextmanager
def storm(
    server: ValkeyServer, organization_id: int, calls: int, budget_nano: int
) -> Iterator[list[subprocess.Popen]]:
    """Three processes that are connected and wait for the word."""
    command = [sys.executable, "-m", "tests.relay.admission.storm", server.url]
    arguments = [str(number) for number in (organization_id, calls, _HOLD, budget_nano)]
    processes = [
        subprocess.Popen(
            [*command, f"p{n}", *arguments],
            cwd=_ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for n in range(3)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def say(processes: list[subprocess.Popen], word: str) -> None:
    for process in processes:
        process.stdin.write(f"{word}\n")
        process.stdin.flush()


def test_500_calls_at_once_against_a_budget_of_10_holds_let_10_through(
    server: ValkeyServer, client: redis.Redis, fresh_id: int
) -> None:
    initialise_counters(client, fresh_id, {})
    with storm(server, fresh_id, 167, 10 * _HOLD + _HOLD - 1) as processes:
        say(processes, "go")
        granted = [call_id for process in processes for call_id in process.stdout.readline().split()]
        assert len(granted) == len(set(granted)) == 10
        assert read_counters(client, fresh_id, ["o", "k1"]) == {
            "o": Use(0, 10 * _HOLD, 10),
            "k1": Use(0, 10 * _HOLD, 10),
        }
        say(processes, "settle")
        assert [process.wait(timeout=20) for process in processes] == [0, 0, 0]
        assert read_counters(client, fresh_id, ["o"]) == {"o": Use(10 * _HOLD, 0, 0)}


def test_killed_processes_give_back_what_they_held(
    server: ValkeyServer, client: redis.Redis, fresh_id: int
) -> None:
    initialise_counters(client, fresh_id, {})
    with storm(server, fresh_id, 20, 100 * _HOLD) as processes:
        say(processes, "go")
        granted = [call_id for process in processes for call_id in process.stdout.readline().split()]
        assert len(granted) == 60
        for process in processes:
            process.kill()
    assert read_counters(client, fresh_id, ["o"]) == {"o": Use(0, 60 * _HOLD, 60)}
    now_ms = client.time()[0] * 1000
    assert sweep_holds(client, [fresh_id], now_ms=now_ms).swept == 0
    assert sweep_holds(client, [fresh_id], now_ms=now_ms + 61_000).swept == 60
    assert read_counters(client, fresh_id, ["o"]) == {"o": Use(0, 0, 0)}
