"""A server of an earlier supervisor that was killed: it may still be shutting down, or run on.

The caller holds the lock of VAR_DIR, so a server at work in one of its folders can only be such a leftover.
Process numbers are used again (in a container soon), so a number in a file proves nothing: what counts is
that the process has the data folder as its working directory.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from signal import Signals

from gateway.embedded.binaries import LaunchError

__all__ = ["end_leftover", "find_leftover"]

_LOOK_S = 0.05


def find_leftover(pid_file: Path, data: Path) -> int | None:
    """The process that a pid file names, if it is at work in this data folder."""
    try:
        text = pid_file.read_text().split("\n", 1)[0].strip()
    except OSError:
        return None
    pid = int(text) if text.isascii() and text.isdigit() else 0
    return pid if pid > 0 and _works_in(pid, data) else None


def end_leftover(pid_file: Path, data: Path, number: Signals, *, wait_s: float) -> None:
    """End such a process and wait for it; then remove the pid file, which would stop a new server.

    Raises LaunchError if it is still there after ``wait_s``.
    """
    pid = find_leftover(pid_file, data)
    if pid is not None:
        give_up_at = time.monotonic() + wait_s
        _send(pid, number)
        while _works_in(pid, data):
            if time.monotonic() > give_up_at:
                raise LaunchError(f"process {pid} of an earlier start still works in {data}: end it first")
            time.sleep(_LOOK_S)
    pid_file.unlink(missing_ok=True)


def _send(pid: int, number: Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as exc:
        raise LaunchError(
            f"process {pid} of an earlier start belongs to somebody else: end it first"
        ) from exc


def _works_in(pid: int, data: Path) -> bool:
    """Whether a living process has this working directory. One that only waits to be reaped has none."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").samefile(data)
        except OSError:
            return False
    done = subprocess.run(
        ["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return str(data) in done.stdout
