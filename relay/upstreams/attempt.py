"""One attempt: send the call to one upstream and wait until its answer is worth committing to.

For a stream that is its first content (role chunks and comments before it are held back, up to `HELD_BYTES`), or its
complete end; for a plain answer the whole body. Everything short of it is an `UpstreamFailure`, and the connection is
closed. After it the caller reads on from `Opened`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import orjson
from msgspec import Struct

from relay.errors import ErrorKind, UpstreamFailure
from relay.protocols.dialect import AnswerStream, Dialect
from relay.protocols.sse import EventTooLarge
from relay.state.snapshot import UpstreamState
from relay.upstreams.classify import (
    BROKE,
    failure_of_error,
    failure_of_fault,
    failure_of_status,
    retry_after_s,
)
from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Buffer, Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.hop import HOP_HEADER, Hops
from relay.upstreams.pool import Pool

__all__ = ["Opened", "Plain", "Upstreams"]

HELD_BYTES = 256 * 1024
ERROR_BYTES = 64 * 1024
PLAIN_BYTES = 64 * 1024 * 1024


class Opened(Struct):
    """A stream that has begun: `held` goes to the client first. `has_ended`: nothing comes after it."""

    exchange: Exchange
    held: bytes
    has_ended: bool
    first_content: float


class Plain(Struct):
    """A whole plain answer, parsed."""

    exchange: Exchange
    body: bytes
    answer: dict[str, object]
    done: float


@dataclass(frozen=True, slots=True)
class _Prepared:
    state: UpstreamState
    endpoint: Endpoint
    heads: dict[tuple[str, bool], bytes]
    streaming: Timeouts
    plain: Timeouts


class Upstreams:
    """The upstreams of one process: the pool, and what is prepared once per state of an upstream.

    `passed_hops` are header lines of the client's that go on to the upstream, see `hop`.
    """

    def __init__(self, pool: Pool, hops: Hops) -> None:
        self.pool = pool
        self._hops = hops
        self._prepared: dict[int, _Prepared] = {}

    def _prepare(self, upstream: UpstreamState) -> _Prepared:
        prepared = self._prepared.get(upstream.id)
        if prepared is not None and prepared.state is upstream:
            return prepared
        given = upstream.timeouts
        prepared = _Prepared(
            upstream,
            Endpoint.parse(upstream.base_url, allow_private=upstream.allow_private, proxy=upstream.proxy),
            {},
            Timeouts(given.connect_s, given.first_token_s, given.idle_s, given.total_s),
            Timeouts(given.connect_s, inf, inf, given.total_s),
        )
        self._prepared[upstream.id] = prepared
        return prepared

    def _head(self, prepared: _Prepared, path: str, *, stream: bool) -> bytes:
        head = prepared.heads.get((path, stream))
        if head is None:
            upstream = prepared.state
            headers = [
                (b"authorization", b"Bearer " + upstream.credential.encode()),
                (b"content-type", b"application/json"),
                (b"accept", b"text/event-stream" if stream else b"application/json"),
                (b"accept-encoding", b"identity" if stream else b"gzip"),
                (b"user-agent", b"yizhan"),
            ]
            replaced = {name.lower().encode() for name, _ in upstream.extra_headers}
            headers = [pair for pair in headers if pair[0] not in replaced]
            headers += [(name.encode(), value.encode()) for name, value in upstream.extra_headers]
            headers.append((HOP_HEADER, self._hops.hop(str(upstream.id))))
            head = prepared.heads[(path, stream)] = build_head("POST", prepared.endpoint, path, headers)
        return head

    async def _open(
        self, upstream: UpstreamState, path: str, body: Sequence[Buffer], passed_hops: bytes, *, stream: bool
    ) -> Exchange:
        try:
            prepared = self._prepare(upstream)
            head = self._head(prepared, path, stream=stream) + passed_hops
        except ValueError as exc:
            raise UpstreamFailure(ErrorKind.UPSTREAM_UNREACHABLE, BROKE, try_next=True) from exc
        exchange = await self.pool.open(
            prepared.endpoint,
            head,
            body,
            timeouts=prepared.streaming if stream else prepared.plain,
            max_body_bytes=None if stream else PLAIN_BYTES,
        )
        if exchange.status != 200:
            try:
                raise await _refusal(exchange)
            finally:
                exchange.close()
        return exchange

    async def open_stream(
        self,
        upstream: UpstreamState,
        dialect: Dialect,
        body: Sequence[Buffer],
        stream: AnswerStream,
        *,
        passed_hops: bytes = b"",
    ) -> Opened:
        """Send, and read to the first content. Raises UpstreamFailure; nothing is left open then."""
        try:
            exchange = await self._open(upstream, dialect.upstream_path, body, passed_hops, stream=True)
            try:
                return await _to_first_content(exchange, stream, upstream, dialect)
            except BaseException:
                exchange.close()
                raise
        except UpstreamFault as fault:
            raise failure_of_fault(fault) from fault
        except EventTooLarge as exc:
            raise UpstreamFailure(ErrorKind.UPSTREAM_GARBAGE, BROKE, try_next=True, http_status=200) from exc

    async def fetch_plain(
        self, upstream: UpstreamState, dialect: Dialect, body: Sequence[Buffer], *, passed_hops: bytes = b""
    ) -> Plain:
        """Send, and read the whole answer. Raises UpstreamFailure; nothing is left open then."""
        try:
            exchange = await self._open(upstream, dialect.upstream_path, body, passed_hops, stream=False)
            try:
                return await _whole_answer(exchange, dialect)
            finally:
                exchange.close()
        except UpstreamFault as fault:
            raise failure_of_fault(fault) from fault


async def _refusal(exchange: Exchange) -> UpstreamFailure:
    """The failure behind a status other than 200, from as much of its body as an error can need."""
    exchange.expect_within(10, FaultKind.IDLE_TIMEOUT)
    body = b""
    try:
        while len(body) < ERROR_BYTES and (data := await exchange.read()):
            body += data
    except UpstreamFault:
        body = b""
    retry_s = retry_after_s(exchange.header(b"retry-after"), time.time())
    return failure_of_status(exchange.status, body, retry_s=retry_s)


async def _to_first_content(
    exchange: Exchange, stream: AnswerStream, upstream: UpstreamState, dialect: Dialect
) -> Opened:
    kind = exchange.header(b"content-type") or b""
    if b"json" in kind or b"html" in kind:
        await _not_a_stream(exchange, kind, dialect)
    left_s = exchange.started + upstream.timeouts.first_token_s - time.perf_counter()
    exchange.expect_within(max(0.0, left_s), FaultKind.FIRST_TOKEN_TIMEOUT)
    held = b""
    while True:
        data = await exchange.read()
        held += stream.feed(data) if data else stream.finish()
        if stream.error is not None and not stream.content_events:
            raise failure_of_error(stream.error)
        if stream.content_events:
            exchange.expect_within(upstream.timeouts.idle_s, FaultKind.IDLE_TIMEOUT, each_wait=True)
            return Opened(exchange, held, not data, time.perf_counter())
        if not data or stream.done:
            if stream.is_complete:
                return Opened(exchange, held, not data, time.perf_counter())
            kind_of_end = (
                ErrorKind.UPSTREAM_EMPTY if stream.done or stream.finish_reason else ErrorKind.UPSTREAM_CUT
            )
            raise UpstreamFailure(kind_of_end, BROKE, try_next=True, http_status=200)
        if len(held) > HELD_BYTES:
            raise UpstreamFailure(ErrorKind.UPSTREAM_GARBAGE, BROKE, try_next=True, http_status=200)


async def _not_a_stream(exchange: Exchange, kind: bytes, dialect: Dialect) -> None:
    """Status 200, but no event stream: an error object in JSON, a page, or nonsense. Always raises UpstreamFailure."""
    body = b""
    if b"json" in kind:
        exchange.expect_within(10, FaultKind.IDLE_TIMEOUT)
        while len(body) < ERROR_BYTES and (data := await exchange.read()):
            body += data
    try:
        error = dialect.answer_error(orjson.loads(body)) if body else None
    except orjson.JSONDecodeError:
        error = None
    if error is not None:
        raise failure_of_error(error)
    raise UpstreamFailure(ErrorKind.UPSTREAM_GARBAGE, BROKE, try_next=True, http_status=200)


async def _whole_answer(exchange: Exchange, dialect: Dialect) -> Plain:
    body = await exchange.read_all()
    done = time.perf_counter()
    try:
        answer = dialect.read_answer(body)
    except ValueError as exc:
        raise UpstreamFailure(ErrorKind.UPSTREAM_GARBAGE, BROKE, try_next=True, http_status=200) from exc
    error = dialect.answer_error(answer)
    if error is not None:
        raise failure_of_error(error)
    if not isinstance(answer, dict) or not dialect.is_complete(answer):
        raise UpstreamFailure(ErrorKind.UPSTREAM_EMPTY, BROKE, try_next=True, http_status=200)
    return Plain(exchange, body, answer, done)
