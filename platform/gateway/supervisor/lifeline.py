"""The line between a supervisor and its children: when the supervisor dies, even by kill -9, they end too.

On Linux the kernel does it (prctl PR_SET_PDEATHSIG, prctl(2)). Three traps, all closed here:

- the setting is cleared when a process changes its user, so it is made afterwards. `subprocess` calls
  ``preexec_fn`` after the user change, which is the right moment;
- a supervisor that dies between fork and prctl would not be noticed, so the child then looks at its parent;
- the signal is sent when the parent *thread* ends: children must be started from a thread that lives as long
  as the supervisor. `Supervisor` has only one.

Elsewhere one tiny guard process (`gateway.supervisor.guard`) holds the reading end of a pipe. Each child
writes its own process id and signal into it before it becomes the program it is to run: none can be missed.
The supervisor alone keeps the writing end open: when it is gone, the guard reads the end of the file and
signals everybody on its list.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

__all__ = ["GuardLine", "KernelLine", "Lifeline", "make_lifeline"]

_PR_SET_PDEATHSIG = 1


class Lifeline(Protocol):
    """What ties a child to its supervisor."""

    def tie(self, death_signal: signal.Signals) -> Callable[[], None]:
        """A function for the child to run just before it becomes its program."""

    def forget(self, pid: int) -> None:
        """This child has ended; its number may soon belong to somebody else."""

    def close(self) -> None:
        """The supervisor ends in order and has no children left."""


class KernelLine:
    """Linux: the kernel sends the signal."""

    def __init__(self) -> None:
        # Loaded here and not in the child: between fork and exec nothing should be looked up.
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def tie(self, death_signal: signal.Signals) -> Callable[[], None]:
        parent, prctl, number = os.getpid(), self._prctl, int(death_signal)

        def tied() -> None:
            if prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0 or os.getppid() != parent:
                os._exit(127)

        return tied

    def forget(self, pid: int) -> None:
        """The kernel keeps no list."""

    def close(self) -> None:
        """The kernel keeps nothing open."""


class GuardLine:
    """Any Unix: a guard process sends the signals."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        guard = Path(__file__).with_name("guard.py")
        try:
            # Out of the supervisor's process group: Ctrl-C in a terminal must not end the guard first.
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(guard)],
                stdin=reading,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(reading)

    def tie(self, death_signal: signal.Signals) -> Callable[[], None]:
        parent, writing, number = os.getpid(), self._writing, int(death_signal)

        def tied() -> None:
            # Shorter than PIPE_BUF, so lines of several children never mix.
            os.write(writing, b"+%d %d\n" % (os.getpid(), number))
            if os.getppid() != parent:
                os._exit(127)

        return tied

    def forget(self, pid: int) -> None:
        try:
            os.write(self._writing, b"-%d\n" % pid)
        except BrokenPipeError:
            # The guard was killed. Children started from now on would be untied, so say it where it shows.
            sys.stderr.write(
                "up: the guard process is gone; restart to be safe against a killed supervisor\n"
            )

    def close(self) -> None:
        os.close(self._writing)
        self._guard.wait()


def make_lifeline() -> Lifeline:
    """The best line this system offers."""
    return KernelLine() if sys.platform == "linux" else GuardLine()
