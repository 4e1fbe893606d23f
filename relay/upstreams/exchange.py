"""One request and its answer, as the caller holds it.

`Pool.open` returns an `Exchange` when the answer's headers have come. The caller reads until `read` returns
nothing, and calls `close` in every ending: after the proper end it does nothing, before it it cuts the
connection at once, which is how an upstream learns that nobody wants the rest.

Waiting is bounded by two deadlines, both absolute: `total_s` for the whole exchange, which runs whether
anybody reads or not, and a limit for the wait of the moment, which only counts while somebody waits (a
caller that does not read, because its own client is slow, must not make the upstream look dead). The limit
begins as `first_token_s` and becomes `idle_s`, anew for each wait, with the first byte of the body;
`expect_within` takes that decision over.

The bytes that have come belong to the exchange and not to the connection: the connection goes back to the
pool with the last byte from the network, whether the caller has read it yet or not.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Protocol

from relay.upstreams.decoding import Decoder, decoder_for
from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["Body", "Buffer", "Exchange", "Line", "Timeouts"]

# Below what makes a connection stop reading: beyond it the bytes have to be taken to get more of them.
WHOLE_BYTES = 131_072

Buffer = bytes | bytearray | memoryview
Body = Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each wait may take, in seconds; `math.inf` for no limit of its own (then `total_s` bounds it).

    `connect_s` covers look-up, TCP, proxy and TLS together, and is not used when a connection is at hand.
    `first_token_s` runs from the moment the request is handed to the connection.
    """

    connect_s: float = 5.0
    first_token_s: float = 300.0
    idle_s: float = 120.0
    total_s: float = 3600.0


class Line(Protocol):
    """What an exchange needs of the connection that carries it."""

    loop: asyncio.AbstractEventLoop
    is_read_paused: bool
    watched_until: float

    def watch(self, at: float) -> None: ...
    def resume(self) -> None: ...
    def abandon(self) -> None: ...


class Exchange:
    """See the module. `status` is 0 until the headers have come.

    `started`, `connected`, `sent` and `headers_at` are `time.perf_counter()` seconds; `sent`, when the last
    byte of the request was handed to the socket, stays 0.0 if the answer came before that.

    `headers` are in the order they came, names in lower case. `content-encoding` and `content-length` are
    taken out when the body is decoded here, because they would no longer be true.
    """

    __slots__ = (
        "_chunks",
        "_decoder",
        "_each_s",
        "_fault",
        "_given_bytes",
        "_has_ended",
        "_idle_s",
        "_is_limit_ours",
        "_limit_at",
        "_limit_kind",
        "_line",
        "_max_body_bytes",
        "_total_at",
        "_waiter",
        "connected",
        "decodes",
        "headers",
        "headers_at",
        "is_head",
        "is_stale",
        "reused",
        "sent",
        "started",
        "status",
        "unread_bytes",
    )

    def __init__(
        self,
        timeouts: Timeouts,
        *,
        started: float,
        reused: bool,
        is_head: bool = False,
        decodes: bool = True,
        max_body_bytes: int | None = None,
    ) -> None:
        self.started = started
        self.connected = perf_counter()
        self.sent = self.headers_at = 0.0
        self.reused = reused
        self.is_head = is_head
        self.decodes = decodes
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        # Whether a reused connection turned out to have been closed while it was idle. Set by the connection.
        self.is_stale = False
        self.unread_bytes = 0
        self._chunks: list[bytes] = []
        self._decoder: Decoder | None = None
        self._line: Line | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._fault: UpstreamFault | None = None
        self._has_ended = False
        self._given_bytes = 0
        self._max_body_bytes = inf if max_body_bytes is None else max_body_bytes
        self._total_at = started + timeouts.total_s
        self._idle_s = timeouts.idle_s
        self._limit_at = self.connected + timeouts.first_token_s
        self._limit_kind = FaultKind.HEADERS_TIMEOUT
        self._each_s = 0.0
        self._is_limit_ours = True

    # What callers use.

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of the header `name` (lower case), or None."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    async def read(self) -> bytes:
        """Return all of the body that is there now, after waiting for at least one byte; b"" at the proper
        end.

        Raises UpstreamFault, but only when everything that came before the fault has been read. Cancelling
        it closes the exchange.
        """
        try:
            while True:
                data = self._take()
                if data:
                    return data
                if self._has_ended:
                    if self._decoder is not None:
                        self._decoder.finish()
                        self._decoder = None
                    return b""
                if self._fault is not None:
                    raise self._fault
                await self.wait()
        except UpstreamFault as fault:
            self._has_ended, self._fault = False, fault
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    async def read_all(self) -> bytes:
        """The whole body; raises what `read` does. The limit for waiting stays what it was for the headers, so
        this is for plain answers, which know no other than `total_s`.
        """
        if self._decoder is None and not self._given_bytes:
            # The usual way: the bytes lie there as they came, and only their end is waited for.
            try:
                while not (self._has_ended or self._fault is not None or self.unread_bytes > WHOLE_BYTES):
                    await self.wait()
            except BaseException:
                self.close()
                raise
            if self._has_ended and self.unread_bytes <= self._max_body_bytes:
                chunks = self._chunks
                body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                chunks.clear()
                self.unread_bytes = 0
                return body
        parts = []
        while data := await self.read():
            parts.append(data)
        return b"".join(parts)

    def expect_within(self, seconds: float, kind: FaultKind, *, each_wait: bool = False) -> None:
        """Set the limit for waiting: `kind` is raised when it passes while somebody waits.

        It is one moment, `seconds` from now, until the next call; with `each_wait` it begins anew with each
        `read`.
        """
        self._is_limit_ours = False
        self._limit_kind = kind
        self._each_s = seconds if each_wait else 0.0
        self._limit_at = perf_counter() + seconds

    def close(self) -> None:
        """Give up. Idempotent, never waits: before the end of the body the connection is aborted at once."""
        line = self._line
        if line is not None:
            self._line = None
            line.abandon()
        if self._fault is None and not (self._has_ended and not self._chunks and self._decoder is None):
            self._has_ended = False
            self._fault = UpstreamFault(FaultKind.CLOSED, "closed before the end of the answer")
        self._decoder = None
        self._chunks.clear()
        self.unread_bytes = 0
        self.wake()

    # What the pool and the connection use.

    async def wait(self) -> None:
        """Wait until the connection wakes us: headers, bytes, end or fault. If cancelled, close."""
        if self._waiter is not None:
            raise RuntimeError("an exchange has one reader")
        line = self._line
        assert line is not None
        if self._each_s:
            self._limit_at = perf_counter() + self._each_s
        if self._limit_at < line.watched_until:
            line.watch(self._limit_at)
        self._waiter = line.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Let the reader look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def carry(self, line: Line) -> None:
        """The connection `line` carries this exchange from now on."""
        self._line = line
        line.watch(min(self._limit_at, self._total_at))

    def accept_head(self, status: int, headers: list[tuple[bytes, bytes]], coding: bytes) -> None:
        """The final headers have come. Raises `malformed` for a coding that cannot be undone."""
        if coding and self.decodes:
            self._decoder = decoder_for(coding)
            if self._decoder is not None:
                headers = [
                    pair for pair in headers if pair[0] not in (b"content-encoding", b"content-length")
                ]
        self.headers = headers
        self.headers_at = perf_counter()
        self.status = status
        if self._is_limit_ours:
            self._limit_kind = FaultKind.FIRST_TOKEN_TIMEOUT

    def accept_body(self, data: bytes) -> None:
        """Bytes of the body have come."""
        self._chunks.append(data)
        self.unread_bytes += len(data)

    def end(self) -> None:
        """The body ended properly; the connection is no longer ours."""
        self._line = None
        self._has_ended = True

    def fail(self, fault: UpstreamFault) -> None:
        """The exchange broke; the connection is no longer ours."""
        self._line = None
        self._fault = fault
        self.wake()

    @property
    def fault(self) -> UpstreamFault | None:
        return self._fault

    def next_deadline(self) -> tuple[float, FaultKind]:
        """Return the earlier of the deadlines that count at this moment, and what passing it means."""
        if self._waiter is not None and self._limit_at < self._total_at:
            return self._limit_at, self._limit_kind
        return self._total_at, FaultKind.TOTAL_TIMEOUT

    def _take(self) -> bytes:
        """Return what is there without waiting, decoded. Lets a paused connection read on."""
        decoder = self._decoder
        chunks = self._chunks
        data = b"" if decoder is None else decoder.step()
        while chunks and not data:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            self.unread_bytes = 0
            line = self._line
            if line is not None and line.is_read_paused:
                line.resume()
            if decoder is not None:
                decoder.feed(data)
                data = decoder.step()
        if not data:
            return data
        if self._is_limit_ours:
            self._is_limit_ours = False
            self._each_s = self._idle_s
            self._limit_kind = FaultKind.IDLE_TIMEOUT
        self._given_bytes += len(data)
        if self._given_bytes > self._max_body_bytes:
            raise UpstreamFault(
                FaultKind.TOO_LARGE, f"the answer is longer than {self._max_body_bytes} bytes"
            )
        return data
