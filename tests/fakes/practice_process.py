"""The practice provider as a process of its own, with its counters."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["PracticeProcess"]


class PracticeProcess:
    """`python -m practice` on a free port; `url` is a base address as an upstream has it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "practice", "--port", "0"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "platform")},
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        self._root = line.partition("listening: ")[2].strip()
        self.url = f"{self._root}/v1"

    def stats(self) -> dict[str, int]:
        """requests, open, hung_up, completed, connections, connections_open."""
        with urllib.request.urlopen(f"{self._root}/practice/stats", timeout=5) as answer:
            found: dict[str, int] = json.load(answer)
            return found

    def wait_for(self, *, within_s: float = 5.0, **wanted: int) -> float:
        """Seconds until the counters are as named. Fails when they are not in time."""
        began = time.perf_counter()
        while any((found := self.stats())[name] != value for name, value in wanted.items()):
            assert time.perf_counter() - began < within_s, f"{found} instead of {wanted}"
            time.sleep(0.005)
        return time.perf_counter() - began

    def close(self) -> None:
        self._process.terminate()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(20)
