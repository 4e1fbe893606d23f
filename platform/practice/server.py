"""The socket: a small HTTP/1.1 server that plays scripts and can therefore misbehave to the byte.

One `Connection` per socket reads requests with httptools, one at a time, and plays each answer with a
`Player`: no task per request, one timer. A client that goes away (either direction closed) stops the player
at once and is counted. Everything is bounded: header bytes, body bytes, requests waiting on a connection,
idle time, and the write buffer (a slow reader pauses its player).
"""

import asyncio
import contextlib
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import cast

import httptools

from practice.app import Provider, Reply, Request, refuse
from practice.refusal import Refusal
from practice.script import Act, Step

MAX_HEADER_BYTES = 65_536
MAX_BODY_BYTES = 33_554_432
MAX_WAITING = 8
# A client that neither sends nor receives for so long is dropped; longer than clients usually keep alive.
IDLE_S = 300.0
WRITE_BUFFER_BYTES = 262_144
# How long a refused client may go on sending before its connection is dropped.
LINGER_S = 1.0
# Steps played in one turn of the loop before others get theirs.
STEPS_AT_ONCE = 64
# What running answers get to finish after SIGTERM.
GRACE_S = 5.0


class Player:
    """Plays one script on a transport. `stop` ends it at once; `on_end` is called when it has run out."""

    def __init__(self, connection: "Connection", reply: Reply) -> None:
        self._connection = connection
        self._steps: Iterator[Step] = reply.steps
        self._on_first = reply.on_first
        self.is_counted = reply.is_counted
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time()
        self._next: Step | None = None
        self._timer: asyncio.Handle | None = None
        self._paused = False

    def stop(self) -> None:
        """Forget the rest of the script."""
        self._steps = iter(())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_paused(self) -> bool:
        """Whether it waits for the client to read."""
        return self._paused

    def pause(self) -> None:
        """The write buffer is full: hold the script until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`; what has become due meanwhile goes out at once."""
        self._paused = False
        if self._timer is None:
            self.run()

    def run(self) -> None:
        """Play every step that is due, then wait for the next one."""
        self._timer = None
        for _ in range(STEPS_AT_ONCE):
            if self._paused:
                return
            step = self._next
            if step is None:
                step = next(self._steps, None)
                if step is None:
                    self._connection.end_answer()
                    return
                self._due_s += step.delay_s
            self._next = None
            if self._due_s > self._loop.time():
                self._next = step
                self._timer = self._loop.call_at(self._due_s, self.run)
                return
            self._play(step)
        self._timer = self._loop.call_soon(self.run)

    def _play(self, step: Step) -> None:
        if step.data:
            self._connection.write(step.data)
        if step.act is Act.FIRST and self._on_first is not None:
            self._on_first(self._loop.time())
        elif step.act in (Act.CLOSE, Act.RESET):
            self._connection.leave(reset=step.act is Act.RESET)


class Connection(asyncio.Protocol):
    """One client. Requests that arrive early wait in order; reading pauses when too many do."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._counters = server.provider.counters
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request | Refusal] = deque()
        self._player: Player | None = None
        self._deaf = False  # what comes from now on cannot be read
        self._gone = False  # closed or closing
        self._active_s = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._start_request()

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being played."""
        return self._player is not None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._loop = asyncio.get_running_loop()
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._counters.connections += 1
        self._counters.connections_open += 1
        self._server.connections.add(self)
        self._active_s = self._loop.time()
        self._idle_timer = self._loop.call_later(IDLE_S, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._counters.connections_open -= 1
        self._server.forget(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._hang_up()

    def eof_received(self) -> bool:
        self._hang_up()
        self._transport.abort()
        return False

    def data_received(self, data: bytes) -> None:
        self._active_s = self._loop.time()
        if self._deaf or self._gone:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(Refusal(400, "no other protocol is offered"))
        except httptools.HttpParserError:
            self._refuse(Refusal(400, "this is not an HTTP/1.1 request"))

    def pause_writing(self) -> None:
        if self._player is not None:
            self._player.pause()

    def resume_writing(self) -> None:
        if self._player is not None:
            self._player.resume()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._start_request()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self._count_header(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue" and not self._deaf:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            self._refuse(Refusal(413, f"the body is larger than {MAX_BODY_BYTES} bytes"))
        elif not self._deaf:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._deaf or self._parser.should_upgrade():
            return
        request = Request(
            method=self._parser.get_method().decode("latin-1"),
            path=self._url.decode("latin-1"),
            headers=self._headers,
            body=b"".join(self._body),
            keep_alive=self._parser.should_keep_alive() and not self._server.is_stopping,
            http_version=self._parser.get_http_version(),
        )
        self._waiting.append(request)
        if len(self._waiting) > MAX_WAITING:
            self._transport.pause_reading()
        self._start_next()

    # What the player calls.

    def write(self, data: bytes) -> None:
        self._active_s = self._loop.time()
        self._transport.write(data)

    def leave(self, *, reset: bool = False) -> None:
        """Close after what was written has gone out; `reset` drops the connection with a RST instead."""
        self._gone = True
        if reset:
            handle = self._transport.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        elif self._deaf and self._transport.can_write_eof():
            # The client may still be sending: closing now would answer with a RST that eats the refusal.
            self._transport.write_eof()
            self._loop.call_later(LINGER_S, self._transport.abort)
        else:
            self._transport.close()

    def end_answer(self) -> None:
        """The script has run out: count it and take the next request."""
        if self._player is not None and self._player.is_counted:
            self._counters.open -= 1
            self._counters.completed += 1
        self._player = None
        if self._gone:
            self._waiting.clear()
        elif self._server.is_stopping and not self._waiting:
            self.leave()
        elif self._waiting:
            self._loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        if self._player is not None or self._gone or not self._waiting:
            return
        request = self._waiting.popleft()
        if len(self._waiting) <= MAX_WAITING and not self._transport.is_closing():
            self._transport.resume_reading()
        if isinstance(request, Refusal):
            asked = Request("", "", {}, keep_alive=False)
            reply = refuse(asked, request)
        else:
            reply = self._server.provider.respond(request, self._loop.time(), int(time.time()))
        if reply.is_counted:
            self._counters.requests += 1
            self._counters.open += 1
        self._player = Player(self, reply)
        self._player.run()

    def _start_request(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._header_bytes = 0

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(Refusal(431, f"the headers are larger than {MAX_HEADER_BYTES} bytes"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be read, after what was read before it, and close."""
        if self._deaf:
            return
        self._waiting.append(refusal)
        self._deaf = True
        self._body.clear()
        self._start_next()

    def _hang_up(self) -> None:
        self._gone = True
        self._waiting.clear()
        if self._player is not None:
            self._player.stop()
            if self._player.is_counted:
                self._counters.open -= 1
                self._counters.hung_up += 1
            self._player = None

    def _check_idle(self) -> None:
        left_s = self._active_s + IDLE_S - self._loop.time()
        if self._player is not None and not self._player.is_paused:
            left_s = IDLE_S
        if left_s > 0:
            self._idle_timer = self._loop.call_later(left_s, self._check_idle)
        else:
            self._transport.abort()


class Server:
    """Listens, and stops in order: no new connections, idle ones closed, running answers given `GRACE_S`."""

    def __init__(self, provider: Provider | None = None) -> None:
        self.provider = provider or Provider()
        self.connections: set[Connection] = set()
        self.is_stopping = False
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen and return the address. Raises OSError when the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        name = self._server.sockets[0].getsockname()
        shown = f"[{name[0]}]" if ":" in name[0] else name[0]
        return f"http://{shown}:{name[1]}"

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Stop listening, let running answers end for `grace_s`, then drop what is left."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            if not connection.is_busy:
                connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._wait_empty()
        for connection in list(self.connections):
            connection.leave(reset=True)
        await self._wait_empty()

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def _wait_empty(self) -> None:
        self._empty.clear()
        if self.connections:
            await self._empty.wait()


async def serve(host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends at once. Prints the address once it listens."""
    server = Server()
    address = await server.start(host, port)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    sys.stdout.write(f"listening: {address}\n")
    sys.stdout.flush()
    await stopped.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    await server.stop()
