"""One HTTP/1.1 request and its answer, between `http_protocol` and the application: ASGI's `receive` and `send`."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

__all__ = ["STATUS_LINES", "Cycle"]

log = logging.getLogger(__name__)

# Reading stops while more than this of a body is unread.
UNREAD_BYTES = 65_536

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}
_BODILESS = frozenset({204, 304})


class Connection(Protocol):
    """What a cycle needs of the protocol that made it."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    flow: Any
    tasks: set[asyncio.Task[None]]

    def default_lines(self) -> bytes: ...
    def end_cycle(self, cycle: "Cycle") -> None: ...


class Cycle:
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

    def __init__(self, protocol: Connection, scope: dict[str, Any], *, keep_alive: bool) -> None:
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

    def call_on_hang_up(self, callback: Callable[[], None]) -> asyncio.Task[None] | None:
        """The extension `HANG_UP`: `callback` is called once if the client goes before its answer is complete."""
        self.hang_up = callback
        return self.task

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
            self._protocol.tasks.discard(self.task)

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
            self._protocol.loop.call_soon(self._flush)
        else:
            raise RuntimeError(f"The application sent '{kind}' out of order.")

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """The extension `ANSWER`: all of it at once, without waiting for a client that is slow with what it has."""
        if self._is_started:
            raise RuntimeError("The application answered twice.")
        if not self._is_disconnected:
            self._begin(status, headers)
            self._send_body(body, more=False)

    def _begin(self, status: int, headers: Any) -> None:
        self._is_started = True
        protocol = self._protocol
        lines = [b"%b: %b\r\n" % pair for pair in headers]
        given = dict(headers)
        if not b"".join(given).islower():  # Django's are not
            given = {name.lower(): value for name, value in headers}
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
        status_line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        self._head = b"%b%b%b\r\n" % (status_line, protocol.default_lines(), head)

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
