"""After the commit point: hand the answer to the client, close the books, hand over its last bytes.

A stream may have got its status line and comments earlier (`KeepAlive`): they commit to nothing.
"""

import asyncio
from contextlib import suppress
from time import perf_counter

import orjson

from billing.pricing import hold_nano
from relay.errors import ErrorKind, Refusal, UpstreamFailure
from relay.metering.estimate import Estimator
from relay.metering.finish import Ending
from relay.metering.timing import server_timing, stages
from relay.protocols.dialect import AnswerStream, Request
from relay.protocols.json_splice import DuplicateMember, find_member, splice
from relay.protocols.sse import EventTooLarge
from relay.stations import Walk
from relay.upstreams.attempt import Opened, Plain
from relay.upstreams.classify import failure_of_error, failure_of_fault
from relay.upstreams.exchange import Exchange
from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["KeepAlive", "deliver_plain", "deliver_stream"]

COMMENT = b": keep-alive\n\n"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
# How long the end of a body may lag behind its end marker before its connection is given up.
DRAIN_S = 1.0
# How much more than it lacks is held for an answer that outgrows its hold: as much as the limits have room for.
GROWTH_TOKENS = (4_096, 256, 0)


class KeepAlive:
    """Comments for a stream on which nothing else is said: the first `beat_s` after acceptance, then every `beat_s`."""

    __slots__ = ("_pending", "_walk")

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        since = perf_counter() - walk.marks.accepted
        self._pending: asyncio.TimerHandle | asyncio.Task[None] = asyncio.get_running_loop().call_later(
            max(0.0, walk.stations.beat_s - since), self._begin
        )

    def stop(self) -> None:
        """No comment after this. Idempotent."""
        self._pending.cancel()

    def _begin(self) -> None:
        self._pending = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        walk = self._walk
        while not walk.sink.has_ended:
            if perf_counter() - walk.sink.last_write >= walk.stations.beat_s / 2:
                await start_stream(walk)
                await walk.sink.write(COMMENT)
            await asyncio.sleep(walk.stations.beat_s)


async def start_stream(walk: Walk) -> None:
    """Status line and headers of an event stream, unless they have gone out."""
    if not walk.sink.has_started:
        await walk.sink.start(200, [*STREAM_HEADERS, (b"server-timing", server_timing(stages(walk.marks)))])


async def deliver_plain(walk: Walk, request: Request, plain: Plain) -> None:
    """A plain answer, whole, under the name that the client used for the model."""
    call, marks, sink, dialect = walk.call, walk.marks, walk.sink, walk.dialect
    answer, body = plain.answer, plain.body
    usage = dialect.usage_of(answer)
    model, tier = answer.get("model"), answer.get("service_tier")
    if isinstance(model, str):
        call.answered_model = model[:200]
    # An answer that names its model twice is passed as it came.
    if model != request.model:
        with suppress(DuplicateMember):
            if (member := find_member(body, "model")) is not None:
                body = b"".join(splice(body, [(member[1], member[2], orjson.dumps(request.model))]))
    call.committed = True
    marks.first_token_out = marks.first_byte_out = perf_counter()
    found = walk.close_books(
        Ending(
            "ok",
            200,
            end_reason=dialect.finish_of(answer)[:48],
            usage=usage,
            output_estimate=0 if usage is not None else _output_estimate(walk, request, answer),
            service_tier=tier[:32] if isinstance(tier, str) else "",
        )
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"server-timing", server_timing(found)),
    ]
    await sink.answer(200, headers, body)


async def deliver_stream(walk: Walk, opened: Opened, keep_alive: KeepAlive | None) -> None:
    """A stream from its first content on. Raises UpstreamFailure where it does not end well."""
    exchange = opened.exchange
    try:
        await _copy(walk, opened, keep_alive)
    except UpstreamFault as fault:
        walk.marks.upstream_done = perf_counter()
        raise failure_of_fault(fault) from fault
    except EventTooLarge as exc:
        message = "The upstream sent an event that is too large."
        raise UpstreamFailure(ErrorKind.UPSTREAM_GARBAGE, message, try_next=False) from exc
    finally:
        exchange.close()


async def _copy(walk: Walk, opened: Opened, keep_alive: KeepAlive | None) -> None:
    stream, sink, marks, exchange = walk.stream, walk.sink, walk.marks, opened.exchange
    assert stream is not None
    await start_stream(walk)
    out, ended = opened.held, opened.has_ended
    await _hold_enough(walk, stream, delivered=0)
    if stream.content_events:
        walk.call.committed = True
        marks.first_token_out = perf_counter()
    while not (stream.done or ended or stream.error is not None):
        if out:
            await sink.write(out)
        delivered = stream.content_events
        data = await exchange.read()
        ended = not data
        out = stream.feed(data) if data else stream.finish()
        if stream.content_events > walk.call.output_held:
            await _hold_enough(walk, stream, delivered=delivered)
    marks.upstream_done = perf_counter()
    if stream.error is not None or not stream.is_complete:
        if out:
            await sink.write(out)
        if stream.error is not None:
            raise failure_of_error(stream.error)
        message = "The upstream broke off its answer."
        raise UpstreamFailure(ErrorKind.UPSTREAM_CUT, message, try_next=False, http_status=200)
    if keep_alive is not None:
        keep_alive.stop()
    if not marks.first_byte_out:
        marks.first_byte_out = perf_counter()
    walk.close_books(walk.ending("ok"))
    await sink.end(out)
    await _let_end(exchange)


async def _hold_enough(walk: Walk, stream: AnswerStream, *, delivered: int) -> None:
    """Hold more before an answer outgrows its hold, as far as we count. Raises Refusal: then no more is delivered."""
    call = walk.call
    if stream.content_events <= call.output_held:
        return
    assert walk.caller is not None and walk.model is not None and walk.model.rates is not None
    lacking = stream.content_events - call.output_held
    for further in GROWTH_TOKENS:
        try:
            extra_nano = hold_nano(walk.model.rates, 0, lacking + further)
            await walk.stations.holds.grow(walk.caller, call.id, extra_nano)
        except Refusal:
            if further:
                continue  # a limit that has room for less than a whole step
            stream.content_events = delivered
            raise
        call.output_held += lacking + further
        return


def _output_estimate(walk: Walk, request: Request, answer: dict[str, object]) -> int:
    """Output tokens of a plain answer whose usage is missing, without what it says again of the request."""
    return Estimator.plain_output_tokens(max(0, walk.dialect.output_bytes(answer) - request.echo_bytes))


async def _let_end(exchange: Exchange) -> None:
    """Read past the end marker to the end of the body, so that the connection can be used again."""
    exchange.expect_within(DRAIN_S, FaultKind.IDLE_TIMEOUT)
    with suppress(UpstreamFault):
        while await exchange.read():
            pass
