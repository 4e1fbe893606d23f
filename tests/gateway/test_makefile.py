"""`make run` with an environment that is there already: what make itself adds to `manage.py up`."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.gateway.house import House, get, house_at
from tests.gateway.processes import lives, wait_until

_ROOT = Path(__file__).resolve().parents[2]
_LOCKS = ("requirements/run.txt", "requirements/test.txt", "requirements/uv.txt", "requirements/install.py")


@pytest.fixture
def house(place) -> Iterator[House]:
    """A house with our Makefile, whose .venv is this environment."""
    with house_at(place) as house:
        shutil.copy(_ROOT / "Makefile", house.root)
        (house.root / "requirements").mkdir()
        for name in _LOCKS:
            shutil.copy(_ROOT / name, house.root / name)
        binaries = house.root / ".venv" / "bin"
        binaries.mkdir(parents=True)
        (binaries / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (binaries / "python").chmod(0o755)
        for name in ("made", "run.stamp", "test.stamp"):
            (house.root / ".venv" / name).touch()
        yield house


def _make(house: House, *arguments: str, **more) -> subprocess.Popen[bytes]:
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    with house.out.open("wb") as out, house.err.open("wb") as err:
        house.process_or_none = subprocess.Popen(
            ["make", "-C", str(house.root), *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            **more,
        )
    return house.process


@pytest.mark.parametrize(
    ("send", "number"),
    [
        (os.kill, signal.SIGTERM),
        (os.killpg, signal.SIGINT),
        # make hands its own on: the supervisor gets two.
        (os.killpg, signal.SIGTERM),
    ],
    ids=["SIGTERM to make", "Ctrl-C in a terminal", "SIGTERM to the whole group"],
)
def test_a_stop_of_make_stops_everything_in_order(house, send, number):
    variables = ("PORT=0", f"VAR_DIR={house.var_dir}", "WEB_WORKERS=1", f"CONFIG={house.root}/manage.py")
    make = _make(house, "run", *variables, start_new_session=True)
    wait_until(lambda: "ready: " in house.out.read_text() or make.poll() is not None, 60)
    url = house.out.read_text().partition("ready: ")[2].split()[0]
    assert get(f"{url}/readyz")
    assert house.commands()[-1] == f"prepare --config {house.root}/manage.py"
    family = [child.pid for child in psutil.Process(make.pid).children(recursive=True)]
    assert len(family) > 6
    send(make.pid, number)
    make.wait(60)
    wait_until(lambda: not any(lives(pid) for pid in family), 60)
    assert house.err.read_text().splitlines().count("up: stopping") == 1
    for words in ("did not end in time", "stopping at once"):
        assert words not in house.err.read_text()
    assert not (house.var_dir / "run" / "servers.json").exists()
    assert not (house.var_dir / "pg" / "data" / "postmaster.pid").exists()


def test_a_second_start_installs_nothing(house):
    done = subprocess.run(
        ["make", "-C", house.root, "-n", "run"], capture_output=True, text=True, check=True, timeout=30
    )
    assert [line for line in done.stdout.splitlines() if not line.startswith("make")] == [
        "exec .venv/bin/python manage.py up"
    ]


def test_a_changed_lock_is_installed_again(house):
    later = (house.root / ".venv" / "run.stamp").stat().st_mtime + 10
    os.utime(house.root / "requirements" / "run.txt", (later, later))
    done = subprocess.run(
        ["make", "-C", house.root, "-n", "run"], capture_output=True, text=True, check=True, timeout=30
    )
    assert ".venv/bin/python requirements/install.py requirements/run.txt" in done.stdout


def test_an_interpreter_that_is_too_old_is_refused(house, place):
    shutil.rmtree(house.root / ".venv")
    old = place / "python2"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    make = _make(house, "run", f"PYTHON={old}")
    assert make.wait(30) == 2
    assert house.err.read_text().splitlines()[0] == (
        f"make: Python 3.11 or newer is needed and {old} is not: name one with PYTHON=..."
    )


def test_an_environment_whose_interpreter_is_gone_is_made_anew(house):
    (house.root / ".venv" / "bin" / "python").unlink()
    done = subprocess.run(
        ["make", "-C", house.root, "-n", "run"], capture_output=True, text=True, check=True, timeout=30
    )
    assert "-m venv --clear .venv" in done.stdout


def test_no_committed_file_names_a_registry():
    names = subprocess.run(
        ["git", "-C", _ROOT, "ls-files", "Makefile", ".ci", "requirements"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split()
    assert "Makefile" in names
    for name in names:
        text = (_ROOT / name).read_text()
        assert "://" not in text.replace("://nobody@127.0.0.1", "").replace("://127.0.0.1", ""), name
