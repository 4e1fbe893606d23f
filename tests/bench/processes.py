"""Processes as Linux shows them: who listens, who descends from whom, what they cost, where they run.

Standard library only. CPU time is user and system time of the processes; memory is PSS, which shares out what
forked processes have in common.
"""

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def free_port() -> int:
    """A port on 127.0.0.1 that nobody has at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def listeners(port: int) -> list[int]:
    """Processes that hold a listening socket on the port, and all their descendants."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    roots = set()
    for held in PROC.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(held.readlink()) in inodes:
                roots.add(int(held.parts[2]))
    return descendants(roots)


def descendants(roots: Iterable[int]) -> list[int]:
    """The processes themselves and everything started by them that still lives."""
    children: dict[int, list[int]] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(parent_in(stat.read_text()), []).append(int(stat.parts[2]))
    todo, seen = list(roots), set()
    while todo:
        pid = todo.pop()
        if pid not in seen:
            seen.add(pid)
            todo += children.get(pid, [])
    return sorted(pid for pid in seen if (PROC / str(pid)).exists())


def parent_in(stat: str) -> int:
    """Pure. The parent in a line of /proc/PID/stat; the name in it may hold spaces and brackets."""
    return int(stat.rsplit(")", 1)[1].split()[1])


def working_below(folder: Path) -> list[int]:
    """Processes whose working folder is in the folder: servers that have left their parent."""
    found = []
    for process in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def command_line(pid: int) -> str:
    """The command line with spaces, or nothing for a process that is gone."""
    try:
        return (
            (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except OSError:
        return ""


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds used so far."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK


def pss_mib(pids: Iterable[int]) -> float:
    """Memory in MiB, shared pages shared out."""
    kib = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kib += int(line.split()[1])
    return kib / 1024


def pin(pids: Iterable[int], cpu: int) -> None:
    """Keep the processes, with all their threads, on one CPU. What they start later stays there too."""
    for pid in pids:
        for thread in (PROC / str(pid) / "task").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread.name), {cpu})
