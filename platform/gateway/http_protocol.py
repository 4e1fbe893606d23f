"""HTTP/1.1 as the data plane needs it: bounded heads, few writes, and a hang-up that is told at once.

A protocol class for uvicorn, which accepts, drains and shuts down, upgrades to WebSocket and answers what cannot be
parsed. What lies between the parser (httptools) and the application is our own, because every call pays for it:

- The parser keeps whatever a client sends until the head is complete, and nobody waits for it with a clock: a client
  could make a process keep gigabytes, or hold connections for ever with a byte now and then. Bodies are bounded by
  those who read them.
- The head of an answer waits for the first bytes of its body, at most to the end of the event loop's turn: one write
  and one wake-up of the client instead of two.
- An application that asks (`scope["extensions"][HANG_UP]`) is told by a callback that its client has gone, and needs
  no second task that waits for it.
- One lazy timer per connection for head and idle time, instead of one made and cancelled for every request.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import Any
from urllib.parse import unquote

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relay.consumers.base import HANG_UP

__all__ = ["RelayHttp"]

log = logging.getLogger(__name__)

# Chosen: nginx takes 32 KiB; the largest seen from a client (cookies of a shared domain) were below 16 KiB.
HEAD_BYTES = 65_536
# Chosen: nginx's client_header_timeout is 60 s; no client needs as long once it is connected.
HEAD_S = 30.0
# Reading stops while more than this of a body is unread.
UNREAD_BYTES = 65_536

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}
_BODILESS = frozenset({204, 304})
_NOTED = frozenset({b"host", b"expect"})
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class _Cycle:
    """One request and its answer: what the application knows as `receive` and `send`."""

    __slots__ = (
        "_body",
        "_head",
        "_is_chunked",
        "_is_disconnected",
        "_is_started",
        "_is_told",
        "_left",
        "_protocol",
        "_unread_bytes",
        "_waiter",
        "expects_continue",
        "hang_up",
        "has_body",
        "is_complete",
        "keep_alive",
        "scope",
        "task",
    )

    def __init__(self, protocol: "RelayHttp", scope: dict[str, Any], *, keep_alive: bool) -> None:
        self._protocol = protocol
        self.scope = scope
        self.keep_alive = keep_alive
        self.expects_continue = False
        self.task: asyncio.Task[None] | None = None
        self.hang_up: Callable[[], None] | None = None
        self.has_body = False  # all of it has come
        self.is_complete = False  # the answer
        self._body: list[bytes] = []
        self._unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_told = False
        self._is_started = False
        self._is_disconnected = False
        self._is_chunked = False
        self._left = 0  # bytes of the announced length; -1 where none was announced
        self._head = b""

    def call_on_hang_up(self, callback: Callable[[], None]) -> None:
        """The extension `HANG_UP`: `callback` is called once if the client goes before its answer is complete."""
        self.hang_up = callback

    async def run(self, app: Any) -> None:
        """The application, whatever it does: the client gets an answer or a closed connection."""
        try:
            await app(self.scope, self.receive, self.send)
            if not self.is_complete and not self._is_disconnected:
                log.error("the application did not complete its answer")
                await self._break_off()
        except asyncio.CancelledError:
            await self._break_off()
            raise
        except Exception:
            log.exception("the application broke")
            await self._break_off()
        finally:
            self._protocol.tasks.discard(self.task)  # type: ignore[arg-type]

    async def _break_off(self) -> None:
        if self._is_started or self._is_disconnected:
            self._protocol.transport.close()
            return
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"21"), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    # The request.

    def take_body(self, data: bytes) -> None:
        """A piece of the body has come."""
        self._body.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > UNREAD_BYTES:
            self._protocol.flow.pause_reading()
        if self._waiter is not None:
            self.wake()

    def wake(self) -> None:
        """Let `receive` look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def lose_client(self) -> None:
        """The connection is gone."""
        self._is_disconnected = True
        self._head = b""
        self.wake()
        if self.hang_up is not None:
            self.hang_up()

    async def receive(self) -> dict[str, Any]:
        """ASGI: the body in as many pieces as it came in, then, once the client or the answer is gone, the end."""
        while not (self._is_disconnected or self.is_complete):
            if not self._is_told and (self._body or self.has_body):
                body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
                self._body.clear()
                self._unread_bytes = 0
                self._is_told = self.has_body
                return {"type": "http.request", "body": body, "more_body": not self.has_body}
            if self.expects_continue and not self._is_started:
                self.expects_continue = False
                self._protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._protocol.flow.resume_reading()
            self._waiter = self._protocol.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return {"type": "http.disconnect"}

    # The answer.

    async def send(self, message: dict[str, Any]) -> None:
        """ASGI. Raises RuntimeError for a message out of order, an illegal header or a body of another length."""
        flow = self._protocol.flow
        if flow.write_paused and not self._is_disconnected:
            await flow.drain()
        if self._is_disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self._is_started and not self.is_complete:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        elif kind == "http.response.start" and not self._is_started:
            self._begin(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"The application sent '{kind}' out of order.")

    def _begin(self, status: int, headers: Any) -> None:
        self._is_started = True
        protocol = self._protocol
        lines = [b"%b: %b\r\n" % pair for pair in headers]
        given = dict(headers)
        length = given.get(b"content-length")
        if length is not None:
            self._left = int(length)
        elif self.scope["method"] != "HEAD" and status not in _BODILESS:
            self._left = -1
            if self.scope["http_version"] == "1.0":
                self.keep_alive = False  # the close is the end of the body
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        if b"close" in given.get(b"connection", b"").lower():
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        # A line break of its own in one of them would begin another header, or the body.
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            self.keep_alive = False
            raise RuntimeError("The application sent an illegal header.")
        status_line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        self._head = b"%b%b%b\r\n" % (status_line, protocol.default_lines(), head)
        protocol.loop.call_soon(self._flush)

    def _send_body(self, body: bytes, *, more: bool) -> None:
        head, self._head = self._head, b""
        if self.scope["method"] == "HEAD":
            self._left = 0
            data = head
        elif self._is_chunked:
            if not body:
                data = head if more else head + b"0\r\n\r\n"
            elif more:
                data = b"%b%x\r\n%b\r\n" % (head, len(body), body)
            else:
                data = b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body)
        else:
            if self._left >= 0:
                self._left -= len(body)
                if self._left < 0:
                    raise RuntimeError("The application sent more than its content-length.")
            data = head + body if head else body
        if data:
            self._protocol.transport.write(data)
        if not more:
            if self._left > 0:
                raise RuntimeError("The application sent less than its content-length.")
            self.is_complete = True
            self.hang_up = None
            self.wake()
            self._protocol.end_cycle(self)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._protocol.transport.write(head)


class RelayHttp(HttpToolsProtocol):
    """Answers 431 to a head beyond `HEAD_BYTES`, and closes a connection whose head is not there within `head_s`.

    Between two requests `timeout_keep_alive` counts, as ever.
    """

    head_s = HEAD_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = False
        self._head_bytes = 0
        self._hosts = 0
        self._is_upgrade = False
        self._due = inf  # loop time at which to close, unless it is moved before
        self._timer: asyncio.TimerHandle | None = None
        self._incoming: _Cycle | None = None  # whose body is being read
        self._running: _Cycle | None = None  # who is being answered
        self._waiting: deque[_Cycle] = deque()  # read, but not begun: the client did not wait for its answers

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_within(self.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)
        self._waiting.clear()
        running, self._running, self._incoming = self._running, None, None
        if running is not None:
            running.lose_client()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                message = f"The headers are larger than {HEAD_BYTES // 1024} KiB."
                self._refuse(431, message, "headers_too_large")
            elif self._head_bytes == len(data):
                self._close_within(self.head_s)

    def shutdown(self) -> None:
        """The server stops: close now if nothing runs here, else after this answer."""
        if self._running is None:
            self.transport.close()
        else:
            self._running.keep_alive = False

    def _close_within(self, seconds: float) -> None:
        self._due = due = self.loop.time() + seconds
        if self._timer is None or self._timer.when() > due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._due <= self.loop.time() + 0.001:
            self.transport.close()
        elif self._due < inf:
            self._timer = self.loop.call_at(self._due, self._look)

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._is_in_head = True
        self._head_bytes = self._hosts = 0
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _NOTED:
            if name == b"host":
                self._hosts += 1
            elif value.lower() == b"100-continue":
                self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._due = inf
        if self.transport.is_closing():
            return  # what follows a request that was refused
        parser = self.parser
        version = parser.get_http_version()
        method = parser.get_method().decode("ascii")
        if self._hosts != 1 and (self._hosts > 1 or version != "1.0"):
            self._refuse(400, "A request names its host exactly once.", "bad_host")
            return
        url = self.url
        if url[:1] == b"/" and b"%" not in url and b"?" not in url and b"#" not in url:
            path, raw_path, query = url.decode("ascii"), url, b""
        else:
            parsed = httptools.parse_url(url)
            raw_path, query = parsed.path or b"/", parsed.query or b""
            path = unquote(raw_path.decode("ascii"))
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": method,
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
        }
        if self.app_state:
            scope["state"] = self.app_state.copy()
        self._is_upgrade = parser.should_upgrade() and self._should_upgrade()
        if self._is_upgrade:
            self.scope = scope  # type: ignore[assignment]
            return
        cycle = _Cycle(self, scope, keep_alive=version != "1.0" and parser.should_keep_alive())
        cycle.expects_continue = self.expect_100_continue
        scope["extensions"] = {HANG_UP: cycle.call_on_hang_up}
        self._incoming = cycle
        if self._running is None:
            self._begin_cycle(cycle)
        else:
            self.flow.pause_reading()
            self._waiting.append(cycle)

    def on_body(self, body: bytes) -> None:
        cycle = self._incoming
        if cycle is not None and not cycle.is_complete:
            cycle.take_body(body)

    def on_message_complete(self) -> None:
        cycle, self._incoming = self._incoming, None
        if cycle is not None:
            cycle.has_body = True
            cycle.wake()

    # The cycles.

    def _begin_cycle(self, cycle: _Cycle) -> None:
        self._running = cycle
        task = cycle.task = self.loop.create_task(cycle.run(self.app))
        self.tasks.add(task)

    def end_cycle(self, cycle: _Cycle) -> None:
        """An answer is complete: begin the next one, or wait for a request."""
        self._running = None
        self.server_state.total_requests += 1
        if not cycle.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._waiting:
            self._begin_cycle(self._waiting.popleft())
        else:
            self._close_within(self.timeout_keep_alive)

    def default_lines(self) -> bytes:
        """The headers that every answer has (the date), as they are written. The server makes a new list each second."""
        headers = self.server_state.default_headers
        lines: tuple[Any, bytes] | None = getattr(self.server_state, "lines", None)
        if lines is None or lines[0] is not headers:
            lines = (headers, b"".join([b"%b: %b\r\n" % pair for pair in headers]))
            self.server_state.lines = lines  # type: ignore[attr-defined]
        return lines[1]

    def _refuse(self, status: int, message: str, code: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = orjson.dumps({"error": error})
        self.transport.write(
            b"%bcontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (_STATUS_LINES[status], len(body), body)
        )
        self.transport.close()
