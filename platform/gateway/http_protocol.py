"""uvicorn's HTTP protocol with bounds on a request's head, and an answer's head and first bytes in one write.

The parser keeps whatever a client sends until the head is complete, and nobody waits for it with a clock: a client
could make a process keep gigabytes, or hold connections for ever with a byte now and then. Bodies are bounded by those
who read them.

uvicorn writes the head of an answer by itself, which costs a system call and wakes the client for nothing: here it
waits for the first bytes of the body, at most to the end of the event loop's turn.
"""

import asyncio
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["RelayHttp"]

# Chosen: nginx takes 32 KiB; the largest seen from a client (cookies of a shared domain) were below 16 KiB.
HEAD_BYTES = 65_536
# Chosen: nginx's client_header_timeout is 60 s; no client needs as long once it is connected.
HEAD_S = 30.0


class _HeadWithBody:
    """A transport for one answer that holds back its first write until the second one."""

    __slots__ = ("_head", "_is_first", "_loop", "_transport")

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._is_first = True
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._is_first:
            self._is_first = False
            self._head = data
            self._loop.call_soon(self._flush)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class RelayHttp(HttpToolsProtocol):
    """Answers 431 to a head beyond `HEAD_BYTES`, and closes a connection whose head is not there within `HEAD_S`.

    Between two requests `timeout_keep_alive` counts, as ever.
    """

    head_s = HEAD_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse()
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(self.head_s, self._give_up)

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        super().on_headers_complete()
        self.cycle.transport = _HeadWithBody(self.transport, self.loop)  # type: ignore[assignment]

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        self.transport.close()

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
