"""A hundred thousand keys: what one change costs, what a key weighs, how much is done in one turn of the event loop."""

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings

from gateway.database import conninfo
from gateway.secret_store import load_secrets
from relay.state.loader import SnapshotLoader
from relay.state.reading import CHANGES, KEYS_AT_ONCE
from tests.fakes.crowd import ORGANIZATIONS, crowd_fingerprint, fill_with_crowd
from tests.fakes.tables import empty_tables

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[3]
KEYS = 100_000
BULK = 10_000
LONGEST_S = 0.005
Owner = psycopg.AsyncConnection[Any]


@pytest.fixture(scope="module")
def crowded(database: str) -> Iterator[str]:
    fill_with_crowd(database, KEYS)
    yield database
    empty_tables(database)


@pytest.fixture
async def owner(database: str) -> AsyncIterator[Owner]:
    info = conninfo(database, role="relay_owner")
    async with await psycopg.AsyncConnection.connect(**info, autocommit=True) as connection:
        yield connection


def make_loader(url: str) -> SnapshotLoader:
    return SnapshotLoader(conninfo(url, role="relay_app"), field_keys=settings.FIELD_KEYS)


@pytest.fixture
async def loader(crowded: str) -> AsyncIterator[SnapshotLoader]:
    made = make_loader(crowded)
    yield made
    await made.close()


class Turns:
    """Looks on at every turn of the event loop: the most rows that were handled in one, and the longest of them."""

    def __init__(self, loader: SnapshotLoader) -> None:
        self._loader = loader
        self.rows = 0
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Turns":
        self._ticking = asyncio.create_task(self._tick())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._ticking is not None
        self._ticking.cancel()
        await asyncio.wait([self._ticking])

    async def _tick(self) -> None:
        rows, at, cpu = self._loader.reading.rows_read, time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0)
            now, cpu_now, rows_now = time.perf_counter(), time.thread_time(), self._loader.reading.rows_read
            self.rows = max(self.rows, rows_now - rows)
            self.longest_s = max(self.longest_s, now - at)
            self.longest_cpu_s = max(self.longest_cpu_s, cpu_now - cpu)
            rows, at, cpu = rows_now, now, cpu_now


async def soon(look: Callable[[], object], *, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not look():  # noqa: ASYNC110  # a snapshot has no event for each change
            await asyncio.sleep(0.002)


async def first_load(loader: SnapshotLoader, owner: Owner) -> None:
    loader.start()
    await loader.until_loaded(60)
    assert loader.loaded.is_set()


async def bulk_change(loader: SnapshotLoader, owner: Owner) -> None:
    """Ten thousand keys change in one transaction."""
    rpm = (loader.snapshot.key(crowd_fingerprint(1)).rpm or 0) + 1  # type: ignore[union-attr]
    await owner.execute(
        "UPDATE accounts_key SET rpm = %s WHERE id IN (SELECT id FROM accounts_key ORDER BY id LIMIT %s)",
        [rpm, BULK],
    )
    await soon(lambda: loader.snapshot.key(crowd_fingerprint(BULK)).rpm == rpm)  # type: ignore[union-attr]
    assert loader.snapshot.key(crowd_fingerprint(1)).rpm == rpm  # type: ignore[union-attr]


async def read_anew(loader: SnapshotLoader, owner: Owner) -> None:
    """The log does not reach back to the last look."""
    count = int(time.time())
    await owner.execute("ALTER TABLE accounts_key DISABLE TRIGGER note_change")
    await owner.execute(
        "UPDATE accounts_key SET concurrency = %s WHERE fingerprint = %s", [count, crowd_fingerprint(9)]
    )
    await owner.execute("ALTER TABLE accounts_key ENABLE TRIGGER note_change")
    assert loader._look is not None
    loader._look = replace(loader._look, at=loader._look.at - timedelta(hours=2))
    await soon(lambda: loader.snapshot.key(crowd_fingerprint(9)).concurrency == count)  # type: ignore[union-attr]


HAPPENINGS = (first_load, bulk_change, read_anew)


async def test_all_of_them_are_loaded(loader: SnapshotLoader, owner: Owner) -> None:
    await first_load(loader, owner)
    assert loader.snapshot.key_count == KEYS
    assert len(loader.snapshot.organizations) == ORGANIZATIONS
    plain, limited = (loader.snapshot.key(crowd_fingerprint(number)) for number in (KEYS - 1, KEYS))
    assert plain is not None and limited is not None
    assert (plain.name, plain.models, plain.rpm, plain.expires_at) == (
        f"production-{KEYS - 1}",
        None,
        None,
        None,
    )
    assert (limited.budget_nano, limited.rpm) == (KEYS * 10**9, 600)
    assert limited.models == {"model-a", f"model-{KEYS % 7}"}
    assert limited.expires_at is not None and limited.expires_at > time.time()
    assert plain.may_call and not plain.revoked
    assert plain.organization_id in loader.snapshot.organizations


async def test_few_rows_are_handled_in_one_turn(loader: SnapshotLoader, owner: Owner) -> None:
    """At the start, when very many keys change at once, and when everything is read anew."""
    handled = []
    for happening in HAPPENINGS:
        before = loader.reading.rows_read
        async with Turns(loader) as turns:
            await happening(loader, owner)
        assert turns.rows <= max(KEYS_AT_ONCE, CHANGES)
        handled.append(loader.reading.rows_read - before)
    whole, bulk, again = handled
    assert whole == pytest.approx(KEYS + ORGANIZATIONS, abs=20)
    # The change and its key, each once.
    assert bulk == pytest.approx(2 * BULK, abs=20)
    assert again == pytest.approx(whole, abs=20)


@pytest.fixture
def collector() -> Iterator[None]:
    """Set as in a relay process; what the tests hold is not the relay's to walk."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.slow
async def test_no_turn_is_long(collector: None, loader: SnapshotLoader, owner: Owner) -> None:
    """In time of this thread's processor: a machine that is busy elsewhere says nothing about us."""
    for happening in HAPPENINGS:
        began = time.perf_counter()
        async with Turns(loader) as turns:
            await happening(loader, owner)
        log.info(
            "%s: %.2f s, longest turn %.1f ms, of the processor %.1f ms",
            happening.__name__,
            time.perf_counter() - began,
            turns.longest_s * 1000,
            turns.longest_cpu_s * 1000,
        )
        assert turns.longest_cpu_s < LONGEST_S, happening.__name__


def weigh(url: str) -> dict[str, int]:
    env = {
        **os.environ,
        **load_secrets(Path(os.environ["VAR_DIR"])),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
        "DATABASE_URL": url,
    }
    command = [sys.executable, "tests/fakes/snapshot_memory.py"]
    said = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, check=True, timeout=100).stdout
    found: dict[str, int] = json.loads(said)
    return found


def test_a_key_weighs_less_than_500_bytes(crowded: str) -> None:
    """Resident memory of a process, all that came with the loading included."""
    found = weigh(crowded)
    log.info(
        "bytes a key: %s",
        {name: (found[name] - found["before"]) / KEYS for name in ("loaded", "anew", "asked")},
    )
    assert found["keys"] == KEYS
    for state in ("loaded", "anew", "asked"):
        assert (found[state] - found["before"]) / KEYS < 500, state
