"""The ASGI edge: a Channels consumer with its own `__call__`, one instance per request.

The stock HTTP consumer notices no hang-up while it handles a request, and costs a thread hop per message. Here the
walk is cancelled at once: by a callback where the server offers one (`HANG_UP`), so that a call is one task; on any
other server by a second task that waits for `http.disconnect`. That comes on every server also after a normal end:
only while the books are open does it mean that the client is gone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import perf_counter
from typing import Any

from channels.consumer import AsyncConsumer

from relay.call import Call
from relay.call_id import new_call_id
from relay.consumers.programs import program_of
from relay.errors import CallError, ErrorKind, Refusal
from relay.metering.timing import Marks
from relay.runtime import RelayRuntime
from relay.sink import ANSWER, Headers, Sink
from relay.upstreams.hop import HOP_HEADER, hops_in

__all__ = ["HANG_UP", "RelayConsumer", "receive_body"]

log = logging.getLogger(__name__)

HANG_UP = "yizhan.hang_up"
"""ASGI extension: a function that takes the callback to be called if the client goes before its answer is complete,
and returns the task in which the application runs."""

BODY_BYTES = 32 * 1024 * 1024
BODY_S = 120.0
# The walk ends at once after a cancellation; this only bounds a fault of ours.
FINISH_S = 10.0

Receive = Callable[[], Awaitable[dict[str, Any]]]


class ClientGone(Exception):
    """The client hung up before its body was complete."""


async def receive_body(receive: Receive, length: bytes | None) -> bytes | bytearray:
    """The whole body, read once into one piece; `length` is what its header says.

    Raises Refusal (too_large, slow_body), ClientGone.
    """
    if length is not None and length.isdigit() and int(length) > BODY_BYTES:
        raise _too_large()
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    first: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return first
    body = bytearray(first)
    try:
        async with asyncio.timeout(BODY_S):
            while message.get("more_body"):
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message.get("body", b"")
                if len(body) > BODY_BYTES:
                    raise _too_large()
    except TimeoutError as exc:
        raise Refusal(ErrorKind.SLOW_BODY, f"The body did not arrive within {BODY_S:.0f} s.") from exc
    return body


def _too_large() -> Refusal:
    return Refusal(ErrorKind.TOO_LARGE, f"The body is larger than {BODY_BYTES // 1024 // 1024} MiB.")


class RelayConsumer(AsyncConsumer):
    """Base of the consumers of the data plane. Needs no channel layer: the alias names none that is configured."""

    channel_layer_alias = "none"
    runtime: RelayRuntime
    given: dict[bytes, bytes]
    """The request's headers by name; of one that stands twice, the last."""

    def __init__(self, runtime: RelayRuntime) -> None:
        self.runtime = runtime

    async def __call__(
        self, scope: dict[str, Any], receive: Receive, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        marks = Marks(perf_counter())
        call = Call(new_call_id())
        given = self.given = dict(scope["headers"])
        shown_id = call.id.encode()
        base: Headers = [(b"x-call-id", shown_id), (b"x-request-id", shown_id)]
        if b"origin" in given:
            base += CORS
        if b"user-agent" in given:
            call.client = program_of(given[b"user-agent"])
        if b"x-task-id" in given:
            call.task_id = given[b"x-task-id"][:200].decode("utf-8", "replace")
        if HOP_HEADER in given:
            call.hops = hops_in(value for name, value in scope["headers"] if name == HOP_HEADER)
        extensions = scope.get("extensions")
        sink = Sink(send, marks, base, extensions.get(ANSWER) if extensions else None)
        if not self.runtime.is_started:
            await self.runtime.start()
        await self.handle(scope, receive, call, marks, sink)

    async def handle(
        self, scope: dict[str, Any], receive: Receive, call: Call, marks: Marks, sink: Sink
    ) -> None:
        """Answer one request."""
        raise NotImplementedError

    async def see_through(
        self, scope: dict[str, Any], receive: Receive, call: Call, walk: Coroutine[Any, Any, None]
    ) -> None:
        """Let the walk come to its end; a client that leaves before the books are closed ends it.

        Whatever else cancels us (the server shuts down) interrupts the call, and its client is told so.
        """
        extensions = scope.get("extensions")
        watch = extensions.get(HANG_UP) if extensions else None
        if watch is None:
            await self._see_through_apart(receive, call, asyncio.create_task(walk))
            return

        def leave() -> None:
            if not call.is_closed:
                call.is_gone = True
                task.cancel()

        task = watch(leave)
        calls = self.runtime.calls
        calls[call.id] = (call, task)
        try:
            await walk
        except asyncio.CancelledError:
            if not call.is_closed:
                raise
        finally:
            del calls[call.id]

    async def _see_through_apart(self, receive: Receive, call: Call, walk: asyncio.Task[None]) -> None:
        self.runtime.calls[call.id] = (call, walk)
        try:
            while not walk.done():
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
            if not call.is_closed:
                call.is_gone = True
                walk.cancel()
        except asyncio.CancelledError:
            walk.cancel()
            raise
        finally:
            if not walk.done():
                await asyncio.wait([walk], timeout=FINISH_S)
            self.runtime.calls.pop(call.id, None)


CORS: Headers = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"x-call-id, x-request-id, server-timing, retry-after"),
]
# Besides `CORS`, which every answer to a browser has: a header that stands twice is none to it.
PREFLIGHT: Headers = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, x-api-key, x-goog-api-key, api-key, x-task-id, *",
    ),
    (b"access-control-max-age", b"86400"),
]


async def answer_json(sink: Sink, status: int, body: bytes, headers: Headers | None = None) -> None:
    """One small JSON answer."""
    await sink.start(
        status,
        [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *(headers or []),
        ],
    )
    await sink.end(body)


def internal_error(call: Call) -> CallError:
    """What a client sees of a fault of ours; the log has the rest under the same id."""
    log.exception("request %s broke", call.id)
    return CallError(ErrorKind.INTERNAL, "The relay failed on this request.")
