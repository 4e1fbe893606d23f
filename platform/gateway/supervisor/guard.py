"""The guard of `gateway.supervisor.lifeline`: outlives a killed supervisor by moments and ends its children.

Run as a script, with the reading end of a pipe as its standard input. Lines are ``+PID SIGNAL`` (a child
began) and ``-PID`` (it has ended). At the end of the file it signals every child on the list and leaves.
It imports nothing of ours and almost nothing of Python, so that it is small and cannot fail with us.
"""

import os
import signal
import sys

__all__ = ["end_children", "read_children"]


def read_children(lines: "list[str]") -> "dict[int, int]":
    """Pure. Children that began and did not end, with the signal each wants.

    >>> read_children(["+10 15", "+11 2", "-10"])
    {11: 2}
    """
    living: dict[int, int] = {}
    for line in lines:
        if line.startswith("+"):
            pid, number = line[1:].split()
            living[int(pid)] = int(number)
        else:
            living.pop(int(line[1:]), None)
    return living


def end_children(living: "dict[int, int]") -> None:
    """Send each its signal; one that is gone already is no matter."""
    for pid, number in living.items():
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines: list[str] = []
    for line in sys.stdin:
        # Only what still counts is kept, so a supervisor of months costs no memory.
        lines = [f"+{pid} {number}" for pid, number in read_children([*lines, line.strip()]).items()]
    end_children(read_children(lines))


if __name__ == "__main__":
    _main()
