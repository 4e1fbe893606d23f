"""The log file of each child: ``VAR_DIR/log/NAME.log``, opened for appending and bounded in size.

A file over its bound becomes ``NAME.log.1`` (one older file is kept): by renaming before a child starts, and
by copying while it runs, because a child keeps its file open. Appending makes it safe to cut a file under its
writer: the next line lands at the new end.
"""

import shutil
from pathlib import Path

__all__ = ["MAX_LOG_BYTES", "cut_log", "last_lines", "log_path", "rotate_log"]

# Chosen: some days of a busy relay; with the older file 64 MiB for each child at most.
MAX_LOG_BYTES = 32 * 1024 * 1024

_TAIL_BYTES = 16 * 1024


def log_path(folder: Path, name: str) -> Path:
    """Pure. The file that the child NAME writes to."""
    return folder / f"{name}.log"


def rotate_log(path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Before a start: set a full file aside."""
    if path.exists() and path.stat().st_size > max_bytes:
        path.replace(path.with_name(f"{path.name}.1"))


def cut_log(path: Path, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Under a running child: copy a full file aside and empty it. Lines written in between are lost."""
    if not path.exists() or path.stat().st_size <= max_bytes:
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    with path.open("r+b") as file:
        file.truncate(0)
    return True


def last_lines(path: Path, since_byte: int = 0, count: int = 15) -> list[str]:
    """The last lines written after a position, for a person who must see why a child ended."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = since_byte if since_byte <= size else 0
            file.seek(max(start, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
