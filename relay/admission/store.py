"""One connection to the limit store (Valkey or Redis) for all calls of a process.

Commands of one turn of the event loop go out in one write; the answers come back in the same order and are
matched to their commands by it. A command that was written and has no answer when the connection breaks is
never sent again: it may have run. Only a command the server says it did not run for want of the script
(NOSCRIPT) is sent once more, after the script.

Money fails closed: whatever goes wrong here (away, slow, refusing, nonsense) is one error,
`StoreUnavailable`, and the call is answered 503. An answer that comes after its deadline is thrown away.

States: *connected*; *reconnecting* (commands wait for the connection, up to their deadline); *down* (the last
attempt failed: commands fail at once, attempts go on with growing pauses). `trouble` says why it is not
connected.

A *composer* is a function that adds its commands at the end of the turn, when it is known what they have in
common.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable, Iterable, Sequence

from relay.admission.address import StoreAddress, make_tls_context, parse_store_url
from relay.admission.scripts import Script
from relay.admission.wire import Command, FutureSlot, Slot, StoreUnavailable, Wire, pack

__all__ = ["Store"]

# Chosen: five times the worst round trip of a busy store, and still not noticed by a person.
TIMEOUT_S = 0.25
# Chosen: TCP, TLS and AUTH to a server in the same region take below 0.1 s.
CONNECT_S = 1.0
# A server that owes an answer this much longer than its deadline gets a new connection: the network may have
# lost the old one without a word.
STALL_S = 1.0
# Pauses between attempts to connect: doubled from the first to the last, each lengthened by up to half, so
# that the processes of a site do not come back in step. The last one leaves time for the rest within the 5 s in which
# a relay has to serve again.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 1.0
# Commands of a process without an answer. Each is one batch or below 1 KB; more of them means that the store
# is lost.
MAX_OPEN = 10_000
# Timers of uvloop are exact to a millisecond.
_TIMER_SLACK_S = 0.001
_KEEPALIVE_S = 30


class Store:
    """The multiplexed connection. Made anywhere; `open` and everything else belong to one event loop."""

    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        url: str,
        *,
        scripts: Iterable[Script] = (),
        timeout_s: float = TIMEOUT_S,
        connect_s: float = CONNECT_S,
        stall_s: float = STALL_S,
        max_open: int = MAX_OPEN,
    ) -> None:
        """Raises ValueError or OSError for a URL, or a certificate file it names, that can't be used."""
        self._address = parse_store_url(url)
        self._tls = None if self._address.tls is None else make_tls_context(self._address.tls)
        self._scripts = tuple(scripts)
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        self._stall_s = stall_s
        self._max_open = max_open
        self._queue: list[Command] = []  # not written yet
        self._composers: list[Callable[[], None]] = []
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._wire: Wire | None = None
        self._is_down = True
        self._is_connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None  # owned here, awaited in close()
        self.trouble = "not opened"

    @property
    def connected(self) -> bool:
        """Whether commands can be sent now."""
        return self._wire is not None and self._wire.is_open

    async def open(self) -> None:
        """Start to keep a connection; returns after the first attempt, whether it succeeded (`connected`) or
        not.
        """
        self.loop = asyncio.get_running_loop()
        tried = asyncio.Event()
        self._is_down = False
        self._keeper = self.loop.create_task(self._keep(tried), name="limit store")
        await tried.wait()

    async def wait_connected(self) -> None:
        """Return once there is a connection; the caller limits the wait."""
        await self._is_connected.wait()

    async def close(self) -> None:
        """Wait for the answers that are due, each up to its deadline, then close. Later commands fail."""
        if self.connected:
            with contextlib.suppress(StoreUnavailable):
                await self.call("PING")
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        if self._wire is not None:
            self._wire.drop("closed")
            await self._wire.closed.wait()
            self._wire = None
        self._is_connected.clear()
        self._go_down("closed")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def call(self, *parts: str | bytes | int) -> object:
        """The answer to one command. Raises StoreUnavailable, also for an error reply."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.send(parts, FutureSlot(future))
        return await future

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | int]) -> object:
        """The answer of one script call. Raises StoreUnavailable."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.send_script(script, keys, args, FutureSlot(future))
        return await future

    def send_script(
        self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | int], slot: Slot
    ) -> None:
        """Put a script call into this turn's write. Keys must lie in one cluster slot."""
        self.send(("EVALSHA", script.sha, len(keys), *keys, *args), slot, script)

    def send(self, parts: Sequence[str | bytes | int], slot: Slot, script: Script | None = None) -> None:
        """Put a command into this turn's write; the slot hears the answer, or at its deadline that there is
        none.
        """
        if self._is_down:
            slot.fail(f"the limit store is not reachable: {self.trouble}")
            return
        if len(self._queue) + (len(self._wire.waiting) if self._wire is not None else 0) >= self._max_open:
            slot.fail("the limit store owes too many answers")
            return
        deadline = self.loop.time() + self._timeout_s
        self._queue.append(Command(pack(parts), slot, deadline, script))
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)
        self._schedule_flush()

    def compose_later(self, composer: Callable[[], None]) -> None:
        """Call the composer at the end of this turn, just before its write."""
        self._composers.append(composer)
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        composers, self._composers = self._composers, []
        try:
            for compose in composers:
                compose()
        finally:
            self._flush_due = False
        if self._queue and self._wire is not None and self._wire.is_open:
            queue, self._queue = self._queue, []
            self._wire.send(queue)

    def _check_deadlines(self) -> None:
        """Fail what is late. One timer for all: set for the first command, set again for the earliest that is
        left.
        """
        self._timer = None
        now = self.loop.time() + _TIMER_SLACK_S
        waiting = self._wire.waiting if self._wire is not None else ()
        due: list[float] = []
        for command in (*waiting, *self._queue):
            if command.deadline <= now:
                command.fail(f"no answer from the limit store within {self._timeout_s} s")
            else:
                due.append(command.deadline)
        self._queue = [command for command in self._queue if command.slot is not None]
        if self._wire is not None and waiting:
            stalled_at = waiting[0].deadline + self._stall_s
            if stalled_at <= now:
                self._wire.drop("the limit store stopped answering")
            else:
                due.append(stalled_at)
        if due:
            self._set_timer(min(due))

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._check_deadlines)

    async def _keep(self, tried: asyncio.Event) -> None:
        """Connect, and again whenever the connection is lost, until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = self.loop.time()
            try:
                wire = await self._connect()
            except (OSError, StoreUnavailable, UnicodeError) as exc:
                self._go_down(str(exc) or type(exc).__name__)
                tried.set()
            else:
                self._go_up(wire)
                tried.set()
                await wire.closed.wait()
                self._wire, self.trouble = None, wire.reason
                self._is_connected.clear()
                if self.loop.time() - began > LAST_PAUSE_S:
                    pause_s = FIRST_PAUSE_S
                    continue
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.5))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _go_up(self, wire: Wire) -> None:
        self._wire, self._is_down, self.trouble = wire, False, ""
        self._is_connected.set()
        self._schedule_flush()

    def _go_down(self, trouble: str) -> None:
        self._is_down, self.trouble = True, trouble
        queue, self._queue = self._queue, []
        for command in queue:
            command.fail(f"the limit store is not reachable: {trouble}")

    async def _connect(self) -> Wire:
        """A connection that is signed in and knows the scripts. Raises OSError (TimeoutError) or
        StoreUnavailable.
        """
        address = self._address
        async with asyncio.timeout(self._connect_s):
            if address.path:
                transport, wire = await self.loop.create_unix_connection(Wire, address.path)
            else:
                transport, wire = await self.loop.create_connection(
                    Wire, address.host, address.port, ssl=self._tls
                )
                _keep_alive(transport)
            try:
                await self._greet(wire)
            except BaseException:
                wire.drop("the limit store did not let us in")
                raise
        return wire

    async def _greet(self, wire: Wire) -> None:
        """Sign in, load the scripts, and find out what would make the counting silently wrong."""
        scripts = [("SCRIPT", "LOAD", script.text) for script in self._scripts]
        greeting = [*_sign_in(self._address), *scripts, ("PING",), ("INFO", "memory")]
        futures: list[asyncio.Future[object]] = [self.loop.create_future() for _ in greeting]
        deadline = self.loop.time() + self._connect_s
        slots = map(FutureSlot, futures)
        wire.send([Command(pack(parts), slot, deadline) for parts, slot in zip(greeting, slots, strict=True)])
        *answers, memory = await asyncio.gather(*futures, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        expected = [*(script.sha.encode() for script in self._scripts), b"PONG"]
        if answers[-len(expected) :] != expected:
            raise StoreUnavailable("the limit store does not load scripts as Valkey does")
        # Not every site lets us ask; where it does, a cache that may drop holds is no store for them.
        if isinstance(memory, bytes) and b"maxmemory_policy:allkeys" in memory:
            raise StoreUnavailable(
                "the limit store may drop any key: its maxmemory-policy must be noeviction"
            )


def _sign_in(address: StoreAddress) -> list[tuple[str | int, ...]]:
    commands: list[tuple[str | int, ...]] = []
    if address.username:
        commands.append(("AUTH", address.username, address.password))
    elif address.password:
        commands.append(("AUTH", address.password))
    if address.database:
        commands.append(("SELECT", address.database))
    return commands


def _keep_alive(transport: asyncio.Transport) -> None:
    """Have the system notice a peer that vanished while nothing was sent."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
