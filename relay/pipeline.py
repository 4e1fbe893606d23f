"""THE WALK of one call. This file states the order of the stations; nothing else knows it.

    authenticate -> no loop -> receive the body -> parse -> model on offer -> candidates -> open line -> hold
    -> failover { attempt to the first content } -> deliver -> close the books -> last bytes

A station takes what the last one gave and returns; none knows its neighbours. The only loop is the failover, and it
ends when the client has been sent its first content. From there on a failure ends the stream with the dialect's error
event, never cleanly, and no other upstream is asked.

The consumer cancels the walk when the client hangs up (`CancelledError` here). The
books are closed by `Walk.close_books`, which is synchronous, so neither a cancellation nor a second ending can come
between. Endings: ok, refused, client error, upstream error (before and after content), client gone, interrupted
(shutdown). Whichever it is, the call leaves here with its books closed and its answer completed, if there is anybody
to answer.

After 10 s without content a stream gets its status line and a comment, and another comment every 10 s of silence: that
keeps proxies and clients waiting, and commits to nothing.
"""

import asyncio
import logging
from contextlib import suppress
from time import perf_counter, time

from relay.admission.authenticate import authenticate
from relay.admit import find_candidates, read_request, refuse_loop, take_hold
from relay.call import Call
from relay.delivery import KeepAlive, deliver_plain, deliver_stream
from relay.errors import RULES, CallError, ErrorKind
from relay.failover import fail_over
from relay.metering.timing import Marks
from relay.protocols.dialect import Dialect
from relay.sink import Sink
from relay.stations import Stations, Walk
from relay.upstreams.attempt import Plain

__all__ = ["Pipeline"]

log = logging.getLogger(__name__)

# A client that takes no more bytes does not hear that the relay shuts down.
FAREWELL_S = 3.0


class Pipeline:
    """The walk of one call, from its headers to its closed books, in the dialect of its endpoint."""

    __slots__ = ("_keep_alive", "_walk")

    def __init__(self, stations: Stations, dialect: Dialect, call: Call, marks: Marks, sink: Sink) -> None:
        self._walk = Walk(stations, call, marks, sink, dialect)
        self._keep_alive: KeepAlive | None = None

    async def admit(self, key: bytes) -> None:
        """The first station, before the body is read. Raises Refusal; there are no books yet."""
        walk = self._walk
        caller = walk.caller = await authenticate(key, walk.stations.loader, walk.stations.peppers, time())
        call = walk.call
        call.organization_id, call.key_id = caller.organization.id, caller.key.id
        call.member_id, call.currency = caller.key.member_id, caller.organization.currency
        walk.marks.authenticated = perf_counter()

    def refuse_loop(self) -> None:
        """Before the body is read too, but with books: a loop is to be seen. Raises Refusal."""
        refuse_loop(self._walk)

    async def run(self, body: bytes | bytearray) -> None:
        """The other stations. Raises only CancelledError."""
        try:
            await self._go_on(body)
        except CallError as error:
            await self.fail(error)
        except asyncio.CancelledError:
            await self._leave()
            raise
        except Exception:
            log.exception("call %s broke", self._walk.call.id)
            await self.fail(
                CallError(ErrorKind.INTERNAL, "The relay failed on this call. It was not charged.")
            )
        finally:
            self._stop_keep_alive()

    async def _go_on(self, body: bytes | bytearray) -> None:
        walk = self._walk
        walk.body = body
        walk.marks.received = perf_counter()
        request = read_request(walk)
        model, candidates = find_candidates(walk, request)
        await take_hold(walk, request, model)
        if request.stream:
            self._keep_alive = KeepAlive(walk)
        opened = await fail_over(walk, request, candidates)
        if isinstance(opened, Plain):
            await deliver_plain(walk, request, opened)
        else:
            await deliver_stream(walk, opened, self._keep_alive)

    async def fail(self, error: CallError) -> None:
        """Close the books of a call that failed, and tell the client in its dialect, wherever its answer stands."""
        self._stop_keep_alive()
        walk, sink, form = self._walk, self._walk.sink, self._walk.dialect.errors
        if walk.caller is not None:
            ending = walk.ending(RULES[error.kind].status, error_kind=error.kind.value)
            ending.http_status = sink.status or form.status(error)
            walk.close_books(ending)
        if sink.has_ended:
            return
        if sink.has_started:
            await sink.end(form.event(error))
            return
        body = form.body(error)
        length = (b"content-length", str(len(body)).encode())
        await sink.start(
            form.status(error), [(b"content-type", b"application/json"), length, *form.headers(error)]
        )
        await sink.end(body)

    async def _leave(self) -> None:
        """The walk was cancelled: the client is gone, or the relay shuts down and says so."""
        walk = self._walk
        if not walk.call.is_gone:
            error = CallError(ErrorKind.SHUTDOWN, "The relay is shutting down; the answer is not complete.")
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await self.fail(error)
        elif walk.caller is not None:
            walk.marks.upstream_done = walk.marks.upstream_done or perf_counter()
            ending = walk.ending("client_gone")
            ending.http_status = walk.sink.status or 499
            walk.close_books(ending)

    def _stop_keep_alive(self) -> None:
        if self._keep_alive is not None:
            self._keep_alive.stop()
            self._keep_alive = None
