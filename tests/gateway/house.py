"""A project folder with the real `gateway.up` and stand-ins for all it starts but the two servers."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from tests.gateway.processes import lives, wait_until

_HERE = Path(__file__).parent
_REAL = _HERE.parents[1] / "platform" / "gateway"
_READY = re.compile(r"^ready: (http://\S+)$", re.MULTILINE)


class House:
    """The folder, and the `up` that runs in it, if any."""

    def __init__(self, place: Path) -> None:
        self.root = place / "project"
        self.var_dir = place / "var"
        self.out, self.err = place / "out", place / "err"
        self.process_or_none: subprocess.Popen[bytes] | None = None
        self._build()

    def _build(self) -> None:
        gateway = self.root / "platform" / "gateway"
        for part in ("embedded", "start", "supervisor"):
            shutil.copytree(_REAL / part, gateway / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("env.py", "env_values.py", "secret_store.py", "up.py"):
            shutil.copy(_REAL / name, gateway)
        (gateway / "__init__.py").touch()
        shutil.copy(_HERE / "stand_in" / "manage.py", self.root)
        shutil.copy(_HERE / "stand_in" / "serve.py", gateway)
        for package in ("celery", "practice"):
            (self.root / package).mkdir()
            (self.root / package / "__init__.py").touch()
            shutil.copy(_HERE / "stand_in" / "wait.py", self.root / package / "__main__.py")

    def start(self, *options: str, **variables: str) -> None:
        """Start `up` on a free port; its output goes to files."""
        env = {
            "PATH": os.environ["PATH"],
            "VAR_DIR": str(self.var_dir),
            "PORT": "0",
            "WEB_WORKERS": "2",
            "PYTHONDONTWRITEBYTECODE": "1",
        } | variables
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process_or_none = subprocess.Popen(
                [sys.executable, str(self.root / "manage.py"), "up", *options],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd="/",
            )

    def wait_ready(self) -> str:
        """The URL of the ready line."""
        wait_until(lambda: _READY.search(self.out.read_text()) or self.code is not None, 60)
        found = _READY.search(self.out.read_text())
        assert found, self.err.read_text()
        return found[1]

    @property
    def is_running(self) -> bool:
        return self.process_or_none is not None and self.code is None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """What `start` started: `up`, or a make that runs it."""
        assert self.process_or_none is not None
        return self.process_or_none

    @property
    def code(self) -> int | None:
        """The exit code, once it has ended."""
        return self.process.poll()

    def end(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 60.0) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def family(self) -> dict[int, str]:
        """All living descendants, with their command lines."""
        found = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[child.pid] = " ".join(child.cmdline())
        return found

    def pids(self, words: str) -> list[int]:
        """Descendants whose command line has these words in it."""
        return [pid for pid, line in self.family().items() if words in line]

    def commands(self) -> list[str]:
        """The commands that were run in this VAR_DIR."""
        return (self.var_dir / "commands").read_text().splitlines()


@contextlib.contextmanager
def house_at(place: Path) -> Iterator[House]:
    """A house that is surely empty again afterwards."""
    house = House(place)
    try:
        yield house
    finally:
        if house.is_running:
            family = house.family()
            house.process.kill()
            house.process.wait()
            for pid, line in family.items():
                if "manage.py up" in line:  # below a make
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not any(lives(pid) for pid in family), 60)


def get(url: str, timeout_s: float = 30.0) -> str:
    """The body of a page."""
    return httpx.get(url, timeout=timeout_s, trust_env=False).raise_for_status().text
