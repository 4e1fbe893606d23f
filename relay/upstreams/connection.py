"""One HTTP/1.1 connection to an upstream: an asyncio protocol round httptools' parser.

A connection carries one `Exchange` at a time. Everything happens in the callbacks of the event loop,
without a task, a stream object or a timer per call:

- `begin` writes the request: a small one in one piece, a large one in slices that go out as the socket
  takes them, so that a body exists once in memory;
- `data_received` feeds the parser, whose callbacks hand headers and body to the exchange, and wakes its
  reader once;
- at the end of the answer the connection goes back to its owner, the pool, if it may be used again.

It may not if the answer said so or was delimited by the close, if bytes followed the end, or if the request
was not sent to its end. Framing that two readers could read in two ways (length and chunked together, two
lengths, a coding after chunked, folded headers, bare line feeds) is `malformed`; the parser refuses most of
it by itself.

One timer per connection, armed late: a deadline that moves later leaves it alone, and when it fires early
it arms itself again. In a steady flow of calls no timer is made or cancelled at all.
"""

import asyncio
from collections import deque
from math import inf
from time import perf_counter
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from relay.upstreams.exchange import Body, Exchange
from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["Connection", "Owner"]

# Bounds of what one answer may make us keep. Chosen: generous; nginx by default takes 4 or 8 KiB of headers
# from an upstream (`proxy_buffer_size`).
MAX_HEAD_BYTES = 65_536
MAX_HEADERS = 200
# Reading stops while more than this is unread, and starts again when the reader has taken it, always whole.
PAUSE_ABOVE_BYTES = 262_144
# A request up to this size is joined and written at once. Chosen: a copy this small costs next to nothing.
JOIN_BYTES = 65_536
# What is handed to the socket at a time of a larger one. Encrypting it or keeping what the socket did not
# take costs a copy of this much and no more.
SLICE_BYTES = 262_144
# A server that closed a connection while it was idle resets it within a round trip of our request. Whoever
# closes later than this had the request, and may have worked on it: sent again it could be paid for twice.
STALE_S = 2.0
# The timer's resolution on both loops is a millisecond.
TIMER_SLACK_S = 0.001

_NOTED = frozenset({b"content-length", b"transfer-encoding", b"content-encoding", b"keep-alive"})


class Owner(Protocol):
    """Who keeps connections between exchanges."""

    def released(self, connection: "Connection") -> None: ...
    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """See the module. `key` is the endpoint's; `idle_s` is how long it may lie idle, learned from the
    peer."""

    __slots__ = (
        "_barren_bytes",
        "_has_answered",
        "_has_junk",
        "_headers",
        "_is_complete",
        "_is_framed",
        "_is_kept",
        "_is_write_paused",
        "_noted",
        "_outgoing",
        "_owner",
        "_parser",
        "_timer",
        "_transport",
        "born",
        "exchange",
        "idle_s",
        "idle_since",
        "is_closing",
        "is_read_paused",
        "key",
        "loop",
        "watched_until",
    )

    def __init__(self, owner: Owner, key: str, loop: asyncio.AbstractEventLoop, idle_s: float) -> None:
        self._owner = owner
        self.key = key
        self.loop = loop
        self.idle_s = idle_s
        self.born = perf_counter()
        self.idle_since = 0.0
        self.exchange: Exchange | None = None
        self.is_closing = False
        self.is_read_paused = False
        self.watched_until = inf
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._outgoing: deque[memoryview] = deque()
        self._is_write_paused = False
        self._forget()

    def _forget(self) -> None:
        """Be ready for the next answer."""
        self._headers: list[tuple[bytes, bytes]] = []
        self._noted: list[tuple[bytes, bytes]] = []
        self._barren_bytes = 0
        self._has_answered = self._has_junk = False
        self._is_complete = self._is_framed = self._is_kept = False

    # What the pool and the exchange call.

    @property
    def is_usable(self) -> bool:
        """Whether a request may be written. A transport that failed says so before it tells us."""
        return not self.is_closing and self._transport is not None and not self._transport.is_closing()

    def begin(self, exchange: Exchange, head: bytes, body: Body, body_bytes: int) -> None:
        """Send a request and let `exchange` have the answer. The connection must be idle and open."""
        transport = self._transport
        assert transport is not None and self.exchange is None
        self.exchange = exchange
        exchange.carry(self)
        if body_bytes <= JOIN_BYTES:
            transport.write(b"".join((head, *body)))
            exchange.sent = perf_counter()
        else:
            self._outgoing.append(memoryview(head))
            self._outgoing.extend(memoryview(segment).cast("B") for segment in body if segment)
            self._pump()

    def abandon(self) -> None:
        """The exchange was given up before its end."""
        self.exchange = None
        self.abort()

    def abort(self) -> None:
        """Close at once: nothing more is sent or received. `Owner.lost` follows."""
        self.is_closing = True
        self._outgoing.clear()
        if self._transport is not None:
            self._transport.abort()

    def fail(self, kind: FaultKind, detail: str) -> None:
        """End the exchange, if there is one, with a fault, and close."""
        exchange = self.exchange
        if exchange is not None:
            self.exchange = None
            exchange.fail(UpstreamFault(kind, detail))
        self.abort()

    def resume(self) -> None:
        """Read on: the exchange's reader has caught up."""
        if self._transport is not None and not self.is_closing:
            self.is_read_paused = False
            self._transport.resume_reading()

    def watch(self, at: float) -> None:
        """Look at the deadlines at `at` or sooner."""
        if at >= self.watched_until:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.watched_until = at
        self._timer = self.loop.call_later(max(at - perf_counter(), 0.0), self._look)

    def _look(self) -> None:
        self._timer = None
        self.watched_until = inf
        exchange = self.exchange
        if exchange is None:
            return
        at, kind = exchange.next_deadline()
        if at - perf_counter() > TIMER_SLACK_S:
            self.watch(at)
        else:
            self.fail(
                kind, "the request was not sent to its end" if self._outgoing else "nothing came in time"
            )

    def _pump(self) -> None:
        """Write slices of a large request until the socket has enough for now."""
        outgoing, transport = self._outgoing, self._transport
        while outgoing and not self._is_write_paused and transport is not None:
            # Off the queue before it is written: the loop may call `resume_writing`, and so this, from
            # inside `write`.
            piece = outgoing.popleft()
            if len(piece) > SLICE_BYTES:
                outgoing.appendleft(piece[SLICE_BYTES:])
                piece = piece[:SLICE_BYTES]
            transport.write(piece)
        if not outgoing and self.exchange is not None:
            self.exchange.sent = perf_counter()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._outgoing:
            self._pump()

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            # Nobody asked: bytes after an end, or a farewell such as 408 to an idle connection. Either way
            # whatever comes next could be taken for the answer to the next request.
            self.abort()
            return
        self._has_answered = True
        self._barren_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.fail(FaultKind.MALFORMED, "the upstream switches protocols, which was not asked for")
            return
        except HttpParserError as exc:
            if not self._is_complete:
                self.fail(FaultKind.MALFORMED, str(exc.__context__ or exc))
                return
            self._has_junk = True
        if self._is_complete:
            self._end()
        elif self._barren_bytes > MAX_HEAD_BYTES:
            self.fail(
                FaultKind.TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes of headers, trailers or framing"
            )
        elif exchange.unread_bytes > PAUSE_ABOVE_BYTES and not self.is_read_paused and not self.is_closing:
            self.is_read_paused = True
            if self._transport is not None:
                self._transport.pause_reading()
        if exchange.status:
            exchange.wake()

    def eof_received(self) -> None:
        exchange = self.exchange
        if exchange is not None and exchange.status and not self._is_framed:
            # RFC 9112, 6.3 (8): without a length the close is the end.
            self._end()
            exchange.wake()
        else:
            # Not left to the transport, which would first wait until the peer has taken all that we wrote.
            self._cut(None)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        self._cut(exc)
        if self._timer is not None:
            self._timer.cancel()
        # The parser, the transport and we hold each other; let go, so that no collector is needed.
        self._transport = self._timer = None
        del self._parser
        self._outgoing.clear()
        self._owner.lost(self)

    def _cut(self, exc: Exception | None) -> None:
        """The peer closed, or the network did: end the exchange, if there is one, before its end."""
        exchange = self.exchange
        if exchange is None:
            return
        is_early = not self._has_answered
        exchange.is_stale = exchange.reused and is_early and perf_counter() - exchange.connected < STALE_S
        kind = FaultKind.SEND_FAILED if is_early and self._outgoing else FaultKind.CUT
        when = "the first byte" if is_early else "the end"
        reason = f": {exc}" if exc else ""
        self.fail(kind, f"the upstream closed the connection before {when} of the answer{reason}")

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._is_complete:
            self._has_junk = True

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers.append((name, value))
        if name in _NOTED:
            self._noted.append((name, value))

    def on_headers_complete(self) -> None:
        exchange = self.exchange
        if exchange is None or self._is_complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101 or status < 100:
                self.fail(FaultKind.MALFORMED, f"an answer with status {status}")
            return
        headers = self._headers
        if len(headers) > MAX_HEADERS:
            self.fail(FaultKind.TOO_LARGE, f"more than {MAX_HEADERS} headers")
            return
        if self._barren_bytes > MAX_HEAD_BYTES:
            size = sum(len(name) + len(value) + 4 for name, value in headers)
            if size > MAX_HEAD_BYTES:
                self.fail(FaultKind.TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes of headers")
                return
        self._barren_bytes = 0
        self._headers = []  # what comes now are trailers: bounded as barren bytes, and dropped
        self._is_kept = self._parser.should_keep_alive()
        try:
            exchange.accept_head(status, headers, self._read_noted())
        except UpstreamFault as fault:
            self.fail(fault.kind, fault.detail)
            return
        if exchange.is_head:
            self._is_complete = True

    def on_body(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None or self._is_complete:
            self._has_junk = True
            return
        self._barren_bytes = 0
        exchange.accept_body(data)

    def on_message_complete(self) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        if exchange.status:
            self._is_complete = True
        else:  # 1xx: the answer proper follows
            self._headers.clear()
            self._noted.clear()

    def _read_noted(self) -> bytes:
        """Return the content coding; note whether the body has an end of its own and how long the peer
        keeps us.

        Raises `malformed` for a transfer coding that is not plain chunked.
        """
        coding = b""
        for name, value in self._noted:
            if name == b"content-length":
                self._is_framed = True
            elif name == b"transfer-encoding":
                self._is_framed = True
                if value.strip().lower() != b"chunked":
                    raise UpstreamFault(FaultKind.MALFORMED, "a transfer coding other than chunked")
            elif name == b"content-encoding":
                coding = coding + b", " + value if coding else value
            else:
                self._learn_idle(value)
        return coding

    def _learn_idle(self, keep_alive: bytes) -> None:
        """Take the peer's `Keep-Alive: timeout=N` to heart: a second less, so that it is us who close
        first."""
        for part in keep_alive.split(b","):
            name, _, seconds = part.strip().partition(b"=")
            if name.strip().lower() == b"timeout" and seconds.strip().isdigit():
                self.idle_s = min(self.idle_s, max(int(seconds[:9]) - 1.0, 0.5))

    def _end(self) -> None:
        """The answer is complete: part from the exchange, and go back to the owner if we can be used
        again."""
        exchange = self.exchange
        assert exchange is not None
        self.exchange = None
        exchange.end()
        is_sent = not self._outgoing and not self._is_write_paused
        if not self._is_kept or self._has_junk or not is_sent or self.is_closing:
            self.abort()
            return
        if exchange.is_head:
            self._parser = HttpResponseParser(self)  # this one waits for the body that the length announced
        self._forget()
        self._owner.released(self)
