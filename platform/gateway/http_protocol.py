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
from collections import deque
from math import inf
from typing import Any
from urllib.parse import unquote

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.http_cycle import STATUS_LINES, Cycle
from relay.consumers.base import HANG_UP
from relay.sink import ANSWER

__all__ = ["RelayHttp"]

# Chosen: nginx takes 32 KiB; the largest seen from a client (cookies of a shared domain) were below 16 KiB.
HEAD_BYTES = 65_536
# Chosen: nginx's client_header_timeout is 60 s; no client needs as long once it is connected.
HEAD_S = 30.0
# Requests of one connection that were sent ahead of the answers, which no client of ours does.
MOST_WAITING = 16
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class RelayHttp(HttpToolsProtocol):
    """Answers 431 to a head beyond `HEAD_BYTES`, and closes a connection whose head is not there within `head_s`.

    Between two requests `timeout_keep_alive` counts, as ever.
    """

    head_s = HEAD_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = False
        self._head_bytes = 0
        self._is_upgrade = False
        self._due = inf  # loop time at which to close, unless it is moved before
        self._timer: asyncio.TimerHandle | None = None
        self._incoming: Cycle | None = None  # whose body is being read
        self._running: Cycle | None = None  # who is being answered
        self._waiting: deque[Cycle] = deque()  # read, but not begun: the client did not wait for its answers

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
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._due = inf
        if self.transport.is_closing():
            return  # what follows a request that was refused
        parser = self.parser
        version = parser.get_http_version()
        method = parser.get_method().decode("ascii")
        given = dict(self.headers)
        if not self._names_host_once(given) and (version != "1.0" or b"host" in given):
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
        cycle = Cycle(self, scope, keep_alive=version != "1.0" and parser.should_keep_alive())
        cycle.expects_continue = given.get(b"expect", b"").lower() == b"100-continue"
        scope["extensions"] = {HANG_UP: cycle.call_on_hang_up, ANSWER: cycle.answer}
        self._incoming = cycle
        if self._running is None:
            self._begin_cycle(cycle)
        else:
            self._waiting.append(cycle)
            if len(self._waiting) >= MOST_WAITING:
                self.flow.pause_reading()  # from here on a hang-up is not noticed either

    def on_body(self, body: bytes) -> None:
        cycle = self._incoming
        if cycle is not None and not cycle.is_complete:
            cycle.take_body(body)

    def on_message_complete(self) -> None:
        cycle, self._incoming = self._incoming, None
        if cycle is not None:
            cycle.has_body = True
            cycle.wake()

    def _names_host_once(self, given: dict[bytes, bytes]) -> bool:
        # RFC 9112, 3.2: two readers could take two hosts for different ones.
        if len(given) == len(self.headers):
            return b"host" in given
        return sum(name == b"host" for name, _ in self.headers) == 1

    # The cycles.

    def _begin_cycle(self, cycle: Cycle) -> None:
        self._running = cycle
        task = cycle.task = self.loop.create_task(cycle.run(self.app))
        self.tasks.add(task)

    def end_cycle(self, cycle: Cycle) -> None:
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
        """The headers that every answer has (the date), as they are written; the list is new each second."""
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
            % (STATUS_LINES[status], len(body), body)
        )
        self.transport.close()
