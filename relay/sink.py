"""Where an answer goes: the seam between the pipeline and the server.

`Sink` counts nothing and decides nothing; it hands bytes to the server's `send`, and measures how long the client makes
us wait. A sink that was cut off (the client left) swallows what is still written.
"""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

from relay.metering.timing import Marks

__all__ = ["ANSWER", "Headers", "Sink"]

ANSWER = "yizhan.answer"
"""ASGI extension: a function that takes status, headers (with a content-length) and body, and has answered then."""

Headers = list[tuple[bytes, bytes]]
Send = Callable[[Any], Awaitable[None]]
Answer = Callable[[int, Headers, bytes], None]


class Sink:
    """One answer on its way to the client."""

    __slots__ = (
        "_answer",
        "_marks",
        "_send",
        "base_headers",
        "has_ended",
        "has_started",
        "last_write",
        "status",
    )

    def __init__(self, send: Send, marks: Marks, base_headers: Headers, answer: Answer | None = None) -> None:
        self._send = send
        self._answer = answer
        self._marks = marks
        self.base_headers = base_headers
        self.has_started = False
        self.has_ended = False
        self.status = 0
        self.last_write = 0.0

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Hand over status and headers; the server sends them with the first bytes of the body."""
        self.has_started = True
        self.status = status
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*self.base_headers, *headers]}
        )

    async def write(self, data: bytes) -> None:
        """Hand over bytes; waits while the client does not take them."""
        before = perf_counter()
        if not self._marks.first_byte_out:
            self._marks.first_byte_out = before
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.last_write = after = perf_counter()
        waited = after - before
        if waited > 0.0005:
            self._marks.write_wait += waited

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Hand over a whole answer, in one step where the server offers it."""
        if self._answer is None or self.has_started:
            await self.start(status, headers)
            await self.end(body)
            return
        self.has_started = self.has_ended = True
        self.status = status
        self._answer(status, [*self.base_headers, *headers], body)

    async def end(self, data: bytes = b"") -> None:
        """Hand over the last bytes."""
        self.has_ended = True
        if data and not self._marks.first_byte_out:
            self._marks.first_byte_out = perf_counter()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
