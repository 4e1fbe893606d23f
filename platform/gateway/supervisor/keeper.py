"""`Supervisor`: a handful of children that are kept running, and ended in order.

One loop on one thread looks at every child a few times a second. Each child sits in a `_Seat`, which is in
one of four states:

    resting -> running -> pausing -> running ...        (ended by itself: started again after a pause)
                      `-> ending -> resting             (no longer wanted, or the whole house ends)

Pauses double while a child keeps failing and start over once it has stayed up for a while. A change is said
once: the first failure, with the child's last lines if it failed early, and the recovery.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import IO, NoReturn

from gateway.supervisor.child import Child, ChildSpec, StartError
from gateway.supervisor.lifeline import Lifeline
from gateway.supervisor.logs import cut_log

__all__ = ["Pauses", "RunFailed", "Supervisor", "restart_pause_s"]

_LOOK_S = 0.1
_CUT_LOGS_S = 60.0
# After a child's kill_signal (PostgreSQL: SIGQUIT) was no use either.
_KILL_AFTER_S = 5.0


class RunFailed(Exception):
    """Something that had to succeed did not; the text is for a person and may have several lines."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait before a failed child is started again, and when it counts as well again."""

    first_s: float = 0.5
    longest_s: float = 30.0
    healthy_s: float = 60.0
    # A child that ends sooner than this could probably not start at all, and its last lines say why.
    early_s: float = 5.0
    # So many failures in a row while somebody waits for it to be ready: it will not be.
    hopeless: int = 5


def restart_pause_s(failures: int, pauses: Pauses) -> float:
    """Pure. The pause after so many failures in a row.

    >>> [restart_pause_s(n, Pauses()) for n in (1, 2, 3, 7, 1000)]
    [0.5, 1.0, 2.0, 30.0, 30.0]
    """
    return min(pauses.first_s * 2.0 ** min(failures - 1, 32), pauses.longest_s)


class _Seat:
    """A child with what is wanted of it and what happened to it lately."""

    def __init__(self, spec: ChildSpec, child: Child) -> None:
        self.spec = spec
        self.child = child
        self.wanted = True
        self.failures = 0
        self.started_at = 0.0
        self.start_at: float | None = None  # pausing until then
        self.asked_at = 0.0
        self.kill_at: float | None = None  # ending, killed then
        self.killed = False

    @property
    def is_running(self) -> bool:
        return self.child.pid is not None


class Supervisor:
    """Children by name. ``say`` gets one line of text for each change that a person should know of."""

    def __init__(
        self,
        *,
        log_dir: Path,
        lifeline: Lifeline,
        say: Callable[[str], None],
        pauses: Pauses | None = None,
    ) -> None:
        self._log_dir = log_dir
        self._lifeline = lifeline
        self._say = say
        self._pauses = pauses or Pauses()
        self._seats: dict[str, _Seat] = {}
        self._hurried_at: float | None = None

    def add(self, spec: ChildSpec, *, wanted: bool = True) -> None:
        """Start a child now, if wanted, and keep it. A failed start is tried again like an early end."""
        seat = _Seat(spec, self._child(spec))
        self._seats[spec.name] = seat
        seat.wanted = wanted
        if wanted:
            self._start(seat, time.monotonic())

    def want(self, name: str, wanted: bool) -> None:
        """Say whether a child should run; nothing happens if that is so already."""
        seat = self._seats[name]
        if seat.wanted == wanted:
            return
        seat.wanted = wanted
        self._say(f"{name}: {'started' if wanted else 'no longer needed, stopped'}")
        if wanted:
            seat.failures, seat.start_at = 0, time.monotonic()
        else:
            self._end(seat, time.monotonic())

    def names(self) -> tuple[str, ...]:
        """Children known so far."""
        return tuple(self._seats)

    def pid(self, name: str) -> int | None:
        """The process of a child, or None while it has none."""
        return self._seats[name].child.pid

    async def wait_ready(self, *names: str, timeout_s: float) -> None:
        """Return once every named child answers that it is ready.

        Raises RunFailed with the last lines of one that is not, when the time is up or it keeps failing.
        """
        give_up_at = time.monotonic() + timeout_s
        for name in names:
            seat = self._seats[name]
            while True:
                if await self._is_ready(seat):
                    break
                if seat.failures >= self._pauses.hopeless:
                    raise RunFailed("\n".join([f"{name} cannot be started", *seat.child.last_words()]))
                if time.monotonic() > give_up_at:
                    what = f"{name} was not ready within {timeout_s:g} s"
                    raise RunFailed("\n".join([what, *seat.child.last_words()]))
                await asyncio.sleep(_LOOK_S / 2)

    async def run(self, spec: ChildSpec, *, timeout_s: float, stdout: IO[bytes] | None = None) -> None:
        """Run a child that ends by itself. Raises RunFailed unless it succeeds, with its last lines."""
        child = self._child(spec)
        try:
            child.start(stdout)
        except StartError as exc:
            raise RunFailed(str(exc)) from exc
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if (code := child.poll()) is not None:
                        break
                    await asyncio.sleep(_LOOK_S / 5)
        except TimeoutError as exc:
            raise RunFailed(f"{spec.name} took longer than {timeout_s:g} s") from exc
        finally:
            await self._end_now(child)
        if code:
            raise RunFailed("\n".join([f"{spec.name} failed ({_describe(code)})", *child.last_words()]))

    async def keep(self) -> NoReturn:
        """Look after the children until cancelled."""
        cut_at = time.monotonic() + _CUT_LOGS_S
        while True:
            now = time.monotonic()
            self.look(now)
            if now >= cut_at:
                cut_at = now + _CUT_LOGS_S
                self._cut_logs()
            await asyncio.sleep(_LOOK_S)

    def _cut_logs(self) -> None:
        for seat in self._seats.values():
            try:
                cut_log(seat.child.log)
            except OSError as exc:
                # A full disk is no reason to end the children, of whom one may be about to free some of it.
                self._say(f"{seat.child.log} cannot be cut: {exc.strerror}")

    def look(self, now: float) -> None:
        """One turn: notice ends, start what is due, kill what is overdue."""
        for seat in self._seats.values():
            code = seat.child.poll()
            if code is not None:
                self._ended(seat, code, now)
            if seat.is_running:
                self._press(seat, now)
                if seat.failures and seat.kill_at is None and now - seat.started_at >= self._pauses.healthy_s:
                    self._say(f"{seat.spec.name}: stable again")
                    seat.failures = 0
            elif seat.wanted and seat.start_at is not None and now >= seat.start_at:
                self._start(seat, now)

    def hurry(self) -> None:
        """Shorten the end: children that only finish their work get a moment instead of their full time."""
        if self._hurried_at is None:
            self._hurried_at = time.monotonic()

    async def stop(self) -> None:
        """End all children, stage by stage; the last ones are those the others depend on."""
        for stage in sorted({seat.spec.stage for seat in self._seats.values()}):
            seats = [seat for seat in self._seats.values() if seat.spec.stage == stage]
            for seat in seats:
                seat.wanted = False
                self._end(seat, time.monotonic())
            while any(seat.is_running for seat in seats):
                self.look(time.monotonic())
                await asyncio.sleep(_LOOK_S / 5)

    def _child(self, spec: ChildSpec) -> Child:
        return Child(spec, lifeline=self._lifeline, log_dir=self._log_dir)

    def _start(self, seat: _Seat, now: float) -> None:
        seat.start_at = seat.kill_at = None
        seat.killed = False
        seat.started_at = now
        try:
            seat.child.start()
        except StartError as exc:
            self._failed(seat, str(exc), now)

    def _ended(self, seat: _Seat, code: int, now: float) -> None:
        was_asked = seat.kill_at is not None
        seat.kill_at = None
        if not seat.wanted:
            return
        if was_asked:  # wanted again while it was ending
            seat.start_at = now
        else:
            self._failed(seat, f"ended ({_describe(code)})", now)

    def _failed(self, seat: _Seat, what: str, now: float) -> None:
        if now - seat.started_at >= self._pauses.healthy_s:
            seat.failures = 0
        seat.failures += 1
        pause_s = restart_pause_s(seat.failures, self._pauses)
        seat.start_at = now + pause_s
        if seat.failures > 1:
            return
        self._say(f"{seat.spec.name}: {what}, starting it again; its log is {seat.child.log}")
        if now - seat.started_at < self._pauses.early_s:
            for line in seat.child.last_words():
                self._say(f"{seat.spec.name}: | {line}")

    def _end(self, seat: _Seat, now: float) -> None:
        """Ask a child to end; `_press` sees to it that it does."""
        seat.start_at = None
        if seat.is_running and seat.kill_at is None:
            seat.asked_at, seat.kill_at = now, now + seat.spec.stop_s
            seat.child.send(seat.spec.stop_signal)

    def _press(self, seat: _Seat, now: float) -> None:
        """Kill a child that was asked to end and has had its time."""
        if seat.kill_at is None:
            return
        kill_at = seat.kill_at
        if self._hurried_at is not None and not seat.killed:
            kill_at = min(kill_at, max(self._hurried_at, seat.asked_at) + seat.spec.hurry_s)
        if now < kill_at:
            return
        number = signal.SIGKILL if seat.killed else seat.spec.kill_signal
        if not seat.killed:
            self._say(f"{seat.spec.name}: did not end in time, sent {number.name}")
        seat.child.send(number)
        seat.killed, seat.kill_at = True, now + _KILL_AFTER_S

    async def _is_ready(self, seat: _Seat) -> bool:
        if not seat.is_running:
            return False
        return seat.spec.ready is None or await seat.spec.ready()

    async def _end_now(self, child: Child) -> None:
        """End a one-time run that was cancelled or took too long."""
        for number, wait_s in ((signal.SIGTERM, _KILL_AFTER_S), (signal.SIGKILL, _KILL_AFTER_S)):
            give_up_at = time.monotonic() + wait_s
            child.send(number)
            while child.pid is not None and time.monotonic() < give_up_at:
                if child.poll() is None:
                    await asyncio.sleep(_LOOK_S / 5)


def _describe(code: int) -> str:
    """Pure. An exit code in words.

    >>> _describe(3), _describe(-9)
    ('exit code 3', 'SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return Signals(-code).name
    except ValueError:
        return f"signal {-code}"
