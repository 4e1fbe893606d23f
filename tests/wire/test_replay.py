"""Journals of a machine that does not come back, replayed beside a running relay: each call comes into the books once."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.practice_process import PracticeProcess
from tests.fakes.relay_process import ROOT
from tests.wire.siblings import Siblings
from tests.wire.test_kill import Load, wait_for
from tests.wire.world import Tenant, eventually

CLOSED, OPEN = 5, 2
# Half a line, as a loss of power leaves it.
TORN = b'c {"id":"0193ffff-0000-7000-8000-000000000001","organization_id":1,"key_'


@dataclass
class Dead:
    """The journal of a machine that is gone, and a caller of a relay that lives."""

    journal: Path
    caller: Tenant
    env: dict[str, str]

    def copy(self, name: str) -> Path:
        """A copy as it is saved from a disk: the journals alone, with a line that was cut."""
        folder = self.journal.with_name(name)
        folder.mkdir()
        for path in self.journal.glob("*.journal"):
            shutil.copy(path, folder)
            with (folder / path.name).open("ab") as file:
                file.write(TORN)
        return folder

    def replay(self, folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "replay", str(folder)],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        return done.stdout.strip()


@pytest.fixture
def dead(
    siblings: Siblings, practice: PracticeProcess, relay_env: dict[str, str], tmp_path: Path
) -> Iterator[Dead]:
    """The first relay had ended some calls that nobody else knows of, and others were open, when it was killed. Its
    sibling is on another machine: the journal is moved out of its reach.
    """
    tenant = siblings.worlds[0].tenant(practice.url)
    dying, living = siblings.known_to_all(tenant)
    assert dying.ask().status == 200
    tenant.check_books(1)
    siblings.database.cut()
    for _ in range(CLOSED):
        assert dying.stream().is_done
    clients = [dying.start("@practice tokens=900,gap_ms=20@") for _ in range(OPEN)]
    for client in clients:
        client.read_head()
    process = siblings.processes[0]
    pid = process.pid
    process.hold()
    journal = tmp_path / "journal"
    journal.mkdir()
    for path in (siblings.var_dir / "journal").glob(f"{pid}-*"):
        path.rename(journal / path.name)
    process.kill()
    for client in clients:
        client.close()
    yield Dead(journal, living, {**relay_env, "LIMITS_REDIS_URL": siblings.valkey.url})


def test_each_call_comes_into_the_books_once_beside_running_calls(dead: Dead) -> None:
    copies = [dead.copy(name) for name in ("first", "second", "third")]
    load = Load(dead.caller)
    try:
        wait_for(load, 10)
        with ThreadPoolExecutor() as pool:
            said = list(pool.map(dead.replay, copies[:2]))
        wait_for(load, 10)
    finally:
        load.stop()
    assert sum(int(text.split()[0]) for text in said) == CLOSED + OPEN
    # The first call's lines are still there, though its record was shipped.
    assert dead.replay(copies[2]) == f"0 calls recorded, {1 + CLOSED + OPEN} were known, 0 refused"
    assert load.broken == 0
    # Counters that were doubted come back with the next call.
    assert dead.caller.ask().status == 200
    records = dead.caller.check_books(1 + CLOSED + OPEN + len(load.answered) + 1)
    interrupted = [record for record in records if record.status == "interrupted"]
    assert len(interrupted) == OPEN
    assert {record.amount_nano for record in interrupted} == {0}


def test_counters_that_were_rebuilt_without_them_are_rebuilt_with_them(
    dead: Dead, siblings: Siblings
) -> None:
    siblings.lose_store("emptied")
    eventually(lambda: dead.caller.ask().status == 200)
    assert len(dead.caller.check_books()) == 2
    copy = dead.copy("copy")
    assert dead.replay(copy).startswith(f"{CLOSED + OPEN} calls recorded")
    eventually(lambda: dead.caller.ask().status == 200)
    records = dead.caller.check_books()
    assert sum(record.status == "ok" for record in records) == 1 + CLOSED + 2
    assert not list(copy.glob("*.journal"))
