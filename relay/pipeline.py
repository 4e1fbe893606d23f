"""THE WALK of one call. This file states the order of the stations; nothing else knows it.

    authenticate -> receive the body -> parse -> model on offer -> candidates -> hold -> open line
    -> failover { attempt to the first content } -> deliver -> close the books -> last bytes

A station takes what the last one gave and returns; none knows its neighbours. The only loop is the failover, and it
ends when the client has been sent its first content. From there on a failure ends the stream with the dialect's error
event, never cleanly, and no other upstream is asked.

The walk runs in a task of its own, which the consumer cancels when the client hangs up (`CancelledError` here). The
books are closed by `Books.close`, which is synchronous, so neither a cancellation nor a second ending can come between.
Endings: ok, refused, client error, upstream error (before and after content), client gone, interrupted (shutdown).

After 10 s without content a stream gets its status line and a comment, and another comment every 10 s: that keeps
proxies and clients waiting, and commits to nothing.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter, time

import orjson

from billing.pricing import Rates, cost_nano, hold_nano
from billing.pricing import TokenCounts as Tokens
from relay.admission.authenticate import Caller, allow_model, authenticate
from relay.admission.holds import Holds
from relay.call import Attempt, Call
from relay.errors import RULES, CallError, ErrorKind, Refusal, UpstreamFailure
from relay.metering.estimate import Estimator
from relay.metering.finish import Books, Ending
from relay.metering.journal import Journal, JournalFull, OpenLine
from relay.metering.timing import Marks, server_timing
from relay.protocols.json_splice import Buffer, find_member, splice
from relay.protocols.openai_chat.errors import error_body, error_event, error_headers, error_status
from relay.protocols.openai_chat.events import ChatStream
from relay.protocols.openai_chat.request import ChatRequest, parse_request, upstream_body
from relay.protocols.openai_chat.usage import read_usage, usage_of_answer
from relay.protocols.sse import EventTooLarge
from relay.scheduler.choose import Candidate, Draw, order_candidates
from relay.sink import Sink
from relay.state.loader import SnapshotLoader
from relay.state.snapshot import ModelState, UpstreamState
from relay.upstreams.attempt import Opened, Plain, Upstreams
from relay.upstreams.classify import failure_of_error, failure_of_fault
from relay.upstreams.exchange import Exchange
from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["ChatWalk", "Stations"]

log = logging.getLogger(__name__)

BEAT_S = 10.0
COMMENT = b": keep-alive\n\n"
DRAIN_S = 1.0
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
GROWTH_TOKENS = 4_096


@dataclass(slots=True)
class Stations:
    """What the walk passes through; one set per process."""

    loader: SnapshotLoader
    holds: Holds
    upstreams: Upstreams
    journal: Journal
    books: Books
    estimator: Estimator
    peppers: Sequence[bytes]
    draw: Draw


class ChatWalk:
    """One call to `/v1/chat/completions`, from its headers to its closed books."""

    __slots__ = (
        "_beat",
        "_body",
        "_caller",
        "_model",
        "_request",
        "_sink",
        "_stations",
        "_stream",
        "_upstream",
        "call",
        "marks",
    )

    def __init__(self, stations: Stations, call: Call, marks: Marks, sink: Sink) -> None:
        self._stations = stations
        self._sink = sink
        self.call = call
        self.marks = marks
        self._beat: asyncio.Task[None] | asyncio.TimerHandle | None = None
        self._body: bytes | bytearray = b""
        self._caller: Caller | None = None
        self._model: ModelState | None = None
        self._request: ChatRequest | None = None
        self._stream: ChatStream | None = None
        self._upstream: UpstreamState | None = None

    async def admit(self, key: bytes) -> None:
        """The first station, before the body is read. Raises Refusal; there are no books yet."""
        caller = await authenticate(key, self._stations.loader, self._stations.peppers, time())
        self._caller = caller
        call = self.call
        call.organization_id, call.key_id = caller.organization.id, caller.key.id
        call.member_id, call.currency = caller.key.member_id, caller.organization.currency
        self.marks.authenticated = perf_counter()

    async def run(self, body: bytes | bytearray) -> None:
        """Walk on. Every ending leaves here with the books closed and the answer completed, if there is anybody to answer."""
        try:
            await self._walk(body)
        except CallError as error:
            await self.fail(error)
        except asyncio.CancelledError:
            await self._leave()
            raise
        except Exception:
            log.exception("call %s broke", self.call.id)
            await self.fail(
                CallError(ErrorKind.INTERNAL, "The relay failed on this call. It was not charged.")
            )
        finally:
            self._stop_beat()

    async def _walk(self, body: bytes | bytearray) -> None:
        self._body = body
        self.marks.received = perf_counter()
        request, model, candidates = self._read_request()
        await self._hold(request, model)
        if request.stream:
            since = perf_counter() - self.marks.accepted
            self._beat = asyncio.get_running_loop().call_later(max(0.0, BEAT_S - since), self._start_beat)
        opened = await self._fail_over(request, candidates)
        if isinstance(opened, Plain):
            await self._deliver_plain(opened)
        else:
            await self._deliver_stream(opened)

    # The stations before any upstream.

    def _read_request(self) -> tuple[ChatRequest, ModelState, list[Candidate]]:
        assert self._caller is not None
        call = self.call
        call.body_bytes = len(self._body)
        request = self._request = parse_request(self._body)
        call.model, call.stream = request.model[:200], request.stream
        call.reasoning_effort, call.service_tier = request.reasoning_effort, request.service_tier
        call.task_id = request.task_id or call.task_id
        snapshot = self._stations.loader.snapshot
        model = self._model = allow_model(self._caller, snapshot, request.model)
        call.model = model.name
        candidates = order_candidates(model, snapshot.upstreams, protocol="openai", rng=self._stations.draw)
        if not candidates:
            raise UpstreamFailure(
                ErrorKind.NO_UPSTREAM,
                f"No upstream offers the model '{model.name}' at the moment.",
                try_next=False,
            )
        self.marks.routed = perf_counter()
        return request, model, candidates

    async def _hold(self, request: ChatRequest, model: ModelState) -> None:
        assert self._caller is not None and model.rates is not None
        call, rates = self.call, model.rates
        input_tokens = Estimator.hold_input_tokens(call.body_bytes, model.context_tokens)
        call.output_held = request.output_ceiling or model.hold_output_tokens * request.choices
        call.hold_nano = hold_nano(rates, input_tokens, call.output_held)
        await self._stations.holds.take(self._caller, call.id, call.hold_nano)
        call.has_hold = True
        self.marks.permitted = perf_counter()
        try:
            self._stations.journal.open(_open_line(call, rates, self._stations.estimator))
        except (JournalFull, OSError) as exc:
            raise Refusal(
                ErrorKind.JOURNAL_FULL,
                "The relay cannot write its journal, so the call was refused.",
                retry_after_s=5,
            ) from exc

    # The only loop.

    async def _fail_over(self, request: ChatRequest, candidates: Sequence[Candidate]) -> Opened | Plain:
        retry_after: float | None = None
        last: UpstreamFailure | None = None
        for route, upstream in candidates:
            started = perf_counter()
            self.marks.attempt_started = started
            self._upstream = upstream
            attempt = Attempt(upstream.id, upstream.name, route.upstream_model)
            self.call.attempts.append(attempt)
            body = upstream_body(self._body, request, upstream_model=route.upstream_model)
            try:
                opened = await self._attempt(upstream, body, request)
            except UpstreamFailure as failure:
                attempt.kind, attempt.http_status = failure.kind.value, failure.http_status
                attempt.ms = (perf_counter() - started) * 1000
                if failure.retry_after_s is not None:
                    retry_after = min(failure.retry_after_s, retry_after or failure.retry_after_s)
                last = failure
                if not failure.try_next:
                    break
                continue
            except asyncio.CancelledError:
                attempt.kind = "client_gone"
                attempt.ms = (perf_counter() - started) * 1000
                raise
            attempt.ms = (perf_counter() - started) * 1000
            attempt.http_status = 200
            self._take_marks(opened)
            return opened
        assert last is not None
        if last.try_next and retry_after is not None:
            last.retry_after_s = max(1, int(-(-retry_after // 1)))
        raise last

    async def _attempt(
        self, upstream: UpstreamState, body: Sequence[Buffer], request: ChatRequest
    ) -> Opened | Plain:
        upstreams = self._stations.upstreams
        if not request.stream:
            return await upstreams.fetch_plain(upstream, "/chat/completions", body)
        self._stream = ChatStream(
            client_model=request.model, keep_usage=request.asks_usage, choices=request.choices
        )
        return await upstreams.open_stream(upstream, "/chat/completions", body, self._stream)

    def _take_marks(self, opened: Opened | Plain) -> None:
        exchange, marks = opened.exchange, self.marks
        marks.connected, marks.sent, marks.headers = exchange.connected, exchange.sent, exchange.headers_at
        if isinstance(opened, Opened):
            marks.first_token = opened.first_content
        else:
            marks.upstream_done = opened.done
        request_id = exchange.header(b"x-request-id")
        if request_id is not None:
            self.call.upstream_request_id = request_id[:200].decode("latin-1")

    # After the commit point.

    async def _deliver_plain(self, plain: Plain) -> None:
        call, answer = self.call, plain.answer
        assert self._request is not None
        raw = usage_of_answer(answer)
        model, tier = answer.get("model"), answer.get("service_tier")
        call.answered_model = model[:200] if isinstance(model, str) else ""
        pieces: Sequence[Buffer] = [plain.body]
        if (
            call.answered_model != self._request.model
            and (member := find_member(plain.body, "model")) is not None
        ):
            pieces = splice(plain.body, [(member[1], member[2], orjson.dumps(self._request.model))])
        call.committed = True
        now = perf_counter()
        self.marks.first_token_out = self.marks.first_byte_out = now
        ending = Ending(
            "ok",
            200,
            end_reason=_finish_reason(answer),
            usage=read_usage(raw) if raw is not None else None,
            output_estimate=0 if raw is not None else _output_estimate(answer),
            service_tier=tier[:32] if isinstance(tier, str) else "",
        )
        body = b"".join(pieces)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"server-timing", server_timing(self.marks)),
        ]
        await self._sink.start(200, headers)
        self._close(ending)
        await self._sink.end(body)

    async def _deliver_stream(self, opened: Opened) -> None:
        stream, sink, marks, exchange = self._stream, self._sink, self.marks, opened.exchange
        assert stream is not None
        try:
            await self._start_stream()
            out, ended = opened.held, opened.has_ended
            self.call.committed = bool(stream.content_events)
            marks.first_token_out = perf_counter() if self.call.committed else 0.0
            while True:
                if stream.error is not None:
                    marks.upstream_done = perf_counter()
                    if out:
                        await sink.write(out)
                    raise failure_of_error(stream.error)
                if stream.done or ended:
                    break
                if out:
                    await sink.write(out)
                if stream.content_events > self.call.output_held:
                    await self._grow_hold(stream)
                data = await exchange.read()
                ended = not data
                out = stream.feed(data) if data else stream.finish()
            marks.upstream_done = perf_counter()
            if not stream.is_complete:
                if out:
                    await sink.write(out)
                raise UpstreamFailure(
                    ErrorKind.UPSTREAM_CUT,
                    "The upstream broke off its answer.",
                    try_next=False,
                    http_status=200,
                )
            self._stop_beat()
            self._close(self._stream_ending("ok"))
            await sink.end(out)
            await _let_end(exchange)
        except UpstreamFault as fault:
            marks.upstream_done = perf_counter()
            raise failure_of_fault(fault) from fault
        except EventTooLarge as exc:
            raise UpstreamFailure(
                ErrorKind.UPSTREAM_GARBAGE, "The upstream sent an event that is too large.", try_next=False
            ) from exc
        finally:
            exchange.close()

    async def _grow_hold(self, stream: ChatStream) -> None:
        """The answer is longer than the hold covers, as far as we can count: hold more, or end it with the limit's error."""
        assert self._caller is not None and self._model is not None and self._model.rates is not None
        extra = hold_nano(self._model.rates, 0, GROWTH_TOKENS)
        await self._stations.holds.grow(self._caller, self.call.id, extra)
        self.call.output_held = stream.content_events + GROWTH_TOKENS

    def _stream_ending(self, status: str, *, error_kind: str = "") -> Ending:
        stream = self._stream
        if stream is None:
            return Ending(status, self._sink.status or 200, error_kind=error_kind)
        self.call.answered_model = stream.answered_model[:200]
        return Ending(
            status,
            self._sink.status or 200,
            error_kind=error_kind,
            end_reason=stream.end_reason,
            usage=stream.usage,
            events=stream.content_events,
            service_tier=stream.service_tier,
        )

    # Headers and comments of a stream.

    async def _start_stream(self) -> None:
        if not self._sink.has_started:
            await self._sink.start(200, [*STREAM_HEADERS, (b"server-timing", server_timing(self.marks))])

    def _start_beat(self) -> None:
        self._beat = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        """Comments while nothing else is said; see the module."""
        with suppress(OSError):
            while not self._sink.has_ended:
                await self._start_stream()
                await self._sink.write(COMMENT)
                await asyncio.sleep(BEAT_S)

    def _stop_beat(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    # Endings other than ok.

    async def fail(self, error: CallError) -> None:
        """Close the books of a call that failed, and tell the client in its dialect, wherever the answer stands."""
        self._stop_beat()
        status = RULES[error.kind].status
        if self._caller is not None:
            ending = self._stream_ending(status, error_kind=error.kind.value)
            ending.http_status = self._sink.status or error_status(error)
            self._close(ending)
        if self._sink.has_ended:
            return
        if self._sink.has_started:
            await self._sink.end(error_event(error))
            return
        body = error_body(error)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *error_headers(error),
        ]
        await self._sink.start(error_status(error), headers)
        await self._sink.end(body)

    async def _leave(self) -> None:
        """The walk was cancelled: the client is gone, or the relay shuts down and says so."""
        if self.call.is_interrupted:
            await self.fail(
                CallError(ErrorKind.SHUTDOWN, "The relay is shutting down; the answer is not complete.")
            )
        elif self._caller is not None:
            self.marks.upstream_done = self.marks.upstream_done or perf_counter()
            ending = self._stream_ending("client_gone")
            ending.http_status = self._sink.status or 499
            self._close(ending)

    def _close(self, ending: Ending) -> None:
        model, upstream = self._model, self._upstream
        self._stations.books.close(
            self.call,
            self.marks,
            ending,
            rates=model.rates if model else None,
            cost_multiplier=upstream.cost_multiplier if upstream else 0,
        )


def _open_line(call: Call, rates: Rates, estimator: Estimator) -> OpenLine:
    tokens = estimator.input_tokens(call.model, call.body_bytes)
    return OpenLine(
        id=call.id,
        organization_id=call.organization_id,
        key_id=call.key_id,
        member_id=call.member_id,
        endpoint=call.endpoint,
        protocol=call.protocol,
        client=call.client,
        model=call.model,
        stream=call.stream,
        task_id=call.task_id,
        price_version=rates.version,
        currency=call.currency,
        hold_nano=call.hold_nano,
        input_tokens=tokens,
        input_cost_nano=cost_nano(rates, Tokens(uncached_input=tokens), 1_000_000),
    )


def _finish_reason(answer: dict[str, object]) -> str:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    reason = first.get("finish_reason") if isinstance(first, dict) else None
    return reason[:48] if isinstance(reason, str) else ""


def _output_estimate(answer: dict[str, object]) -> int:
    """Output tokens of a plain answer whose usage is missing, from the bytes of its messages."""
    choices = answer.get("choices")
    messages = (
        [choice.get("message") for choice in choices if isinstance(choice, dict)]
        if isinstance(choices, list)
        else []
    )
    return Estimator.plain_output_tokens(len(orjson.dumps(messages)))


async def _let_end(exchange: Exchange) -> None:
    """Read past the end marker to the end of the body, so that the connection can be used again."""
    exchange.expect_within(DRAIN_S, FaultKind.IDLE_TIMEOUT)
    with suppress(UpstreamFault):
        while await exchange.read():
            pass
