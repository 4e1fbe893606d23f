"""uvicorn's HTTP protocol as the data plane needs it: bounded heads, few writes, and a hang-up that is told at once.

- The parser keeps whatever a client sends until the head is complete, and nobody waits for it with a clock: a client
  could make a process keep gigabytes, or hold connections for ever with a byte now and then. Bodies are bounded by
  those who read them.
- uvicorn writes the head of an answer by itself, which costs a system call and wakes the client for nothing: here it
  waits for the first bytes of the body, at most to the end of the event loop's turn.
- An application that asks (`scope["extensions"][HANG_UP]`) is told by a callback that its client has gone, and needs
  no second task that waits for it.
- One lazy timer per connection for head and idle time, instead of one made and cancelled for every request.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from relay.consumers.base import HANG_UP

__all__ = ["RelayHttp"]

# Chosen: nginx takes 32 KiB; the largest seen from a client (cookies of a shared domain) were below 16 KiB.
HEAD_BYTES = 65_536
# Chosen: nginx's client_header_timeout is 60 s; no client needs as long once it is connected.
HEAD_S = 30.0

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}
_BODILESS = frozenset({204, 304})


class RelayCycle(RequestResponseCycle):
    """One request and its answer. Made by uvicorn as its own class and turned into this one before it runs."""

    hang_up: Callable[[], None] | None = None
    _head = b""

    def call_on_hang_up(self, callback: Callable[[], None]) -> None:
        """The extension `HANG_UP`: `callback` is called once if the client goes before its answer is complete."""
        self.hang_up = callback

    def lose_client(self) -> None:
        """The connection is gone."""
        self.disconnected = True
        self._head = b""
        self.message_event.set()
        if self.hang_up is not None:
            self.hang_up()

    async def send(self, message: Any) -> None:
        """ASGI. Raises RuntimeError for a message out of order, an illegal header or a body of another length."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.response_started and not self.response_complete:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        elif kind == "http.response.start" and not self.response_started:
            self._begin(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"The application sent '{kind}' out of order.")

    def _begin(self, status: int, headers: Any) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [b"%b: %b\r\n" % pair for pair in [*self.default_headers, *headers]]
        given = dict(headers)
        length = given.get(b"content-length")
        self.chunked_encoding = False
        if length is not None:
            self.expected_content_length = int(length)
        elif self.scope["method"] != "HEAD" and status not in _BODILESS:
            self.expected_content_length = -1
            if self.scope["http_version"] == "1.0":
                self.keep_alive = False  # the close is the end of the body
            else:
                self.chunked_encoding = True
                lines.append(b"transfer-encoding: chunked\r\n")
        if b"close" in given.get(b"connection", b"").lower():
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        # A line break of its own in one of them would begin another header, or the body.
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise RuntimeError("The application sent an illegal header.")
        self._head = b"%b%b\r\n" % (_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, head)
        asyncio.get_running_loop().call_soon(self._flush)

    def _send_body(self, body: bytes, *, more: bool) -> None:
        head, self._head = self._head, b""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            data = head
        elif self.chunked_encoding:
            if not body:
                data = head if more else head + b"0\r\n\r\n"
            elif more:
                data = b"%b%x\r\n%b\r\n" % (head, len(body), body)
            else:
                data = b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body)
        else:
            if self.expected_content_length >= 0:
                self.expected_content_length -= len(body)
                if self.expected_content_length < 0:
                    raise RuntimeError("The application sent more than its content-length.")
            data = head + body if head else body
        if data:
            self.transport.write(data)
        if not more:
            self._complete()

    def _complete(self) -> None:
        if self.expected_content_length > 0:
            raise RuntimeError("The application sent less than its content-length.")
        self.response_complete = True
        self.hang_up = None
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self.transport.write(head)


class RelayHttp(HttpToolsProtocol):
    """Answers 431 to a head beyond `HEAD_BYTES`, and closes a connection whose head is not there within `HEAD_S`.

    Between two requests `timeout_keep_alive` counts, as ever.
    """

    head_s = HEAD_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = False
        self._head_bytes = 0
        self._due = inf  # loop time at which to close, unless it is moved before
        self._timer: asyncio.TimerHandle | None = None
        self._running: RelayCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_within(self.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)
        running, self._running = self._running, None
        if running is not None and not running.response_complete:
            running.lose_client()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse()
            elif self._head_bytes == len(data):
                self._close_within(self.head_s)

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._due = inf
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.__class__ = RelayCycle
        assert isinstance(cycle, RelayCycle)
        self._running = cycle
        cycle.scope["extensions"] = {HANG_UP: cycle.call_on_hang_up}  # type: ignore[dict-item]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Begin the next request of the pipeline, or wait for one."""
        self._running = None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._close_within(self.timeout_keep_alive)

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

    def _refuse(self) -> None:
        message = f"The headers are larger than {HEAD_BYTES // 1024} KiB."
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": "headers_too_large",
        }
        body = orjson.dumps({"error": error})
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()
