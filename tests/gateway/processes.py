"""Helpers for tests that start processes: where and whether they live, and waiting for them."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def make_place() -> Path:
    """A short folder that every user may pass through; the caller removes it."""
    folder = Path(tempfile.mkdtemp(prefix="yz-", dir="/tmp"))
    folder.chmod(0o711)
    return folder


def wait_until(is_so: Callable[[], object], timeout_s: float = 15.0) -> None:
    """Return as soon as something is so, which another process brings about; fail if it never is."""
    give_up_at = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
