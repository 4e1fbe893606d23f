"""What a child process is, and one running instance of it.

A child has its own session: Ctrl-C in a terminal reaches the supervisor alone, which then ends everybody in
order. Both of its outputs go to its log file, its input is empty.
"""

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import IO

from gateway.supervisor.lifeline import Lifeline
from gateway.supervisor.logs import last_lines, log_path, rotate_log

__all__ = ["Child", "ChildSpec", "Identity", "StartError"]


class StartError(Exception):
    """A process could not be started. The text is one line for a person."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The user a process runs as, where that is not the user of the supervisor."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """All that is needed to start, watch and stop one child.

    ``stage`` orders the stop: children of stage 0 end first, all of one stage together. ``stop_s`` is how
    long a child may take before it gets ``kill_signal``, ``hurry_s`` the same once a person asked a second
    time. ``death_signal`` is what it gets if the supervisor itself is killed.
    ``ready`` answers whether it does its work by now; without it, running is enough.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path | None = None
    identity: Identity | None = None
    pass_fds: tuple[int, ...] = ()
    nice: int = 0
    stop_signal: Signals = signal.SIGTERM
    death_signal: Signals = signal.SIGTERM
    kill_signal: Signals = signal.SIGKILL
    stage: int = 0
    stop_s: float = 10.0
    hurry_s: float = 1.0
    ready: Callable[[], Awaitable[bool]] | None = field(default=None, compare=False)


class Child:
    """One instance of a spec; starts at most one process at a time."""

    def __init__(self, spec: ChildSpec, *, lifeline: Lifeline, log_dir: Path) -> None:
        self.spec = spec
        self.log = log_path(log_dir, spec.name)
        self._lifeline = lifeline
        self._log_from = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The number of the running process, or None."""
        return self._process.pid if self._process else None

    def start(self, stdout: IO[bytes] | None = None) -> None:
        """Start the process. Raises StartError if the system refuses; ``stdout`` replaces the log for it."""
        spec, identity = self.spec, self.spec.identity
        try:
            rotate_log(self.log)
            # "a": another handle may cut the file, and old lines must stay.
            with self.log.open("ab") as log:
                self._log_from = log.tell()
                self._process = subprocess.Popen(
                    spec.argv,
                    env=dict(spec.env),
                    cwd=spec.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout or log,
                    stderr=log,
                    pass_fds=spec.pass_fds,
                    start_new_session=True,
                    preexec_fn=self._before_exec(),  # noqa: PLW1509 - one thread only, see lifeline
                    user=identity.uid if identity else None,
                    group=identity.gid if identity else None,
                    extra_groups=[] if identity else None,
                )
        except (OSError, subprocess.SubprocessError) as exc:
            raise StartError(f"{spec.name} cannot be started: {exc}") from exc

    def poll(self) -> int | None:
        """The exit code once the process has ended (negative: the signal that ended it), else None."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is not None:
            self._lifeline.forget(self._process.pid)
            self._process = None
        return code

    def send(self, number: Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def last_words(self) -> list[str]:
        """What this instance wrote last."""
        return last_lines(self.log, self._log_from)

    def _before_exec(self) -> Callable[[], None]:
        tied, nice = self._lifeline.tie(self.spec.death_signal), self.spec.nice

        def before_exec() -> None:
            tied()
            if nice:
                os.nice(nice)

        return before_exec
