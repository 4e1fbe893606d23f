"""The only loop of the walk: try the candidates in their order until one has content for the client.

Every attempt starts from the original body. What a failed attempt cost is ours, not the caller's; it stands in the
call's `attempts`. The loop ends with the first answer worth committing to, or with the failure of the last candidate.
"""

import asyncio
from collections.abc import Iterator, Sequence
from time import perf_counter

from relay.call import Attempt
from relay.errors import UpstreamFailure
from relay.protocols.dialect import Request
from relay.scheduler.choose import Candidate
from relay.stations import Walk
from relay.upstreams.attempt import Opened, Plain
from relay.upstreams.exchange import Exchange
from relay.upstreams.hop import hop_lines

__all__ = ["fail_over"]


async def fail_over(walk: Walk, request: Request, candidates: Sequence[Candidate]) -> Opened | Plain:
    """The first answer with content. Raises UpstreamFailure with the shortest wait that any upstream asked for."""
    retry_after: int | None = None
    last: UpstreamFailure | None = None
    call, marks, upstreams, dialect = walk.call, walk.marks, walk.stations.upstreams, walk.dialect
    hops = hop_lines(call.hops) if call.hops else b""
    for route, upstream in _still_on(walk, candidates):
        body = dialect.make_body(walk.body, request, upstream_model=route.upstream_model)
        started = perf_counter()
        if call.attempts:
            marks.attempt_started = started  # what lies before it is the stage `failover`
        walk.upstream, call.upstream_id = upstream, upstream.id
        attempt = Attempt(upstream.name, route.upstream_model)
        call.attempts.append(attempt)
        opened: Opened | Plain
        try:
            if request.stream and dialect.make_stream is not None:
                stream = dialect.make_stream(client_model=request.model, keep_usage=request.asks_usage)
                walk.stream = stream
                opened = await upstreams.open_stream(upstream, dialect, body, stream, passed_hops=hops)
                marks.first_token = opened.first_content
            else:
                opened = await upstreams.fetch_plain(upstream, dialect, body, passed_hops=hops)
                marks.upstream_done = opened.done
        except UpstreamFailure as failure:
            marks.headers = perf_counter()  # whatever kept it, it was a wait for this upstream
            attempt.result = failure.kind.value
            if failure.http_status is not None:
                attempt.http_status = failure.http_status
            if failure.retry_after_s is not None:
                retry_after = min(failure.retry_after_s, retry_after or failure.retry_after_s)
            last = failure
            if not failure.try_next:
                break
        except asyncio.CancelledError:
            marks.headers = perf_counter()
            attempt.result = "client_gone"
            raise
        else:
            attempt.http_status = 200
            _take_marks(walk, opened.exchange)
            return opened
        finally:
            attempt.ms = int((perf_counter() - started) * 1e6 + 0.5) / 1000
    assert last is not None
    if last.try_next and retry_after is not None:
        last.retry_after_s = retry_after
    raise last


def _still_on(walk: Walk, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """The candidates but for those that were switched off since they were chosen: an attempt may take minutes."""
    loader = walk.stations.loader
    for candidate in candidates:
        if walk.call.attempts:
            now = loader.snapshot.upstreams.get(candidate[1].id)
            if now is None or not now.enabled:
                continue
        yield candidate


def _take_marks(walk: Walk, exchange: Exchange) -> None:
    marks = walk.marks
    marks.connected, marks.sent, marks.headers = exchange.connected, exchange.sent, exchange.headers_at
    request_id = exchange.header(b"x-request-id")
    if request_id is not None:
        walk.call.upstream_request_id = request_id[:200].decode("latin-1")
