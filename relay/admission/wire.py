"""The protocol side of the connection to the limit store: bytes out, answers in, matched by their order.

A `Wire` is one TCP, TLS or unix connection from its opening to its loss; `relay.admission.store` opens them
one after the other. Answers go to *slots*, so that many callers can share one command without a future and a
task for each.

    StoreError                    whatever keeps a call from being permitted that is not a refusal
    └── StoreUnavailable          away, slow, refusing or talking nonsense: the call is answered 503

Other members of the family are in `relay.admission.permit`.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol, cast

import hiredis

from relay.admission.scripts import Script

__all__ = ["Command", "FutureSlot", "IgnoredSlot", "Slot", "StoreError", "StoreUnavailable", "Wire", "pack"]

# What hiredis returns while an answer is incomplete; None is an answer.
_INCOMPLETE = object()
# Error codes of a server that is up but can't serve for a while: asking for a new connection may reach one
# that can (a failover moves the name or the virtual address), and tells readiness.
_LEAVE_CODES = frozenset({"LOADING", "MASTERDOWN", "NOAUTH", "READONLY"})


class StoreError(Exception):
    """The limit store did not decide. Nothing is permitted on its account."""


class StoreUnavailable(StoreError):
    """The store is away, too slow, or answered what it should not. A command may or may not have run."""


class Slot(Protocol):
    """Where an answer goes. Exactly one of the two is called, once, by the event loop; neither may raise."""

    def deliver(self, answer: object) -> None:
        """Take the answer; it is never an error reply."""

    def fail(self, reason: str) -> None:
        """Take the news that no answer will come."""


class FutureSlot:
    """The slot of a single caller."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[object]) -> None:
        self._future = future

    def deliver(self, answer: object) -> None:
        if not self._future.done():
            self._future.set_result(answer)

    def fail(self, reason: str) -> None:
        if not self._future.done():
            self._future.set_exception(StoreUnavailable(reason))


class IgnoredSlot:
    """The slot of a command whose answer nobody needs."""

    __slots__ = ()

    def deliver(self, answer: object) -> None:
        """Drop it."""

    def fail(self, reason: str) -> None:
        """Drop it."""


class Command:
    """A command on its way. `slot` is None once its deadline has passed: then the answer is read and thrown
    away.

    `script` is what to load if the server answers NOSCRIPT.
    """

    __slots__ = ("deadline", "packed", "script", "slot")

    def __init__(self, packed: bytes, slot: Slot, deadline: float, script: Script | None = None) -> None:
        self.packed = packed
        self.slot: Slot | None = slot
        self.deadline = deadline
        self.script = script

    def fail(self, reason: str) -> None:
        """Tell the slot, unless it was told before."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.fail(reason)


def pack(parts: Sequence[str | bytes | int]) -> bytes:
    """Pure. The bytes of one command.

    >>> pack(("GET", b"a"))
    b'*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\na\\r\\n'
    """
    packed: bytes = hiredis.pack_command(tuple(parts))  # type: ignore[arg-type]  # the stub wants a 1-tuple
    return packed


class Wire(asyncio.Protocol):
    """One connection. `waiting` holds the commands that were written and not yet answered, oldest first."""

    def __init__(self) -> None:
        self.waiting: deque[Command] = deque()
        self.closed = asyncio.Event()
        self.is_open = False
        self.reason = ""  # why it was closed
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self.is_open = True

    def send(self, commands: Sequence[Command]) -> None:
        """Write all in one go. Only while `is_open`."""
        assert self._transport is not None
        self._transport.write(b"".join([command.packed for command in commands]))
        self.waiting.extend(commands)

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self.waiting
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not _INCOMPLETE:
                if not waiting:
                    self.drop("the store sent an answer to no command")
                    return
                command = waiting.popleft()
                if type(answer) is hiredis.ReplyError:
                    self._take_error(command, str(answer))
                elif command.slot is not None:
                    command.slot.deliver(answer)
        except hiredis.ProtocolError:
            self.drop("the store sent what is not its protocol")

    def _take_error(self, command: Command, text: str) -> None:
        code = text.partition(" ")[0]
        if code == "NOSCRIPT" and command.script is not None and self.is_open:
            # It did not run, so sending it again is safe; what follows it was refused likewise and keeps its
            # order.
            load = pack(("SCRIPT", "LOAD", command.script.text))
            command.script = None
            self.send((Command(load, IgnoredSlot(), command.deadline), command))
            return
        command.fail(f"the store answered: {text[:200]}")
        if code in _LEAVE_CODES:
            self.drop(f"the store answered: {text[:200]}")

    def drop(self, reason: str) -> None:
        """Close without sending what is still buffered. Commands without an answer fail with the reason."""
        self.is_open = False
        self.reason = self.reason or reason
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self.reason = self.reason or "the connection to the store was lost"
        while self.waiting:
            self.waiting.popleft().fail(self.reason)
        self.closed.set()
