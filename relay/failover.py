"""The only loop of the walk: try the candidates in their order until one has content for the client.

Every attempt starts from the original body. What a failed attempt cost is ours, not the caller's; it stands in the
call's `attempts`. The loop ends with the first answer worth committing to, or with the failure of the last candidate.
"""

import asyncio
from collections.abc import Sequence
from time import perf_counter

from relay.call import Attempt
from relay.errors import UpstreamFailure
from relay.protocols.dialect import Request
from relay.protocols.json_splice import Buffer
from relay.scheduler.choose import Candidate
from relay.state.snapshot import UpstreamState
from relay.stations import Walk
from relay.upstreams.attempt import Opened, Plain
from relay.upstreams.hop import hop_lines

__all__ = ["fail_over"]


async def fail_over(walk: Walk, request: Request, candidates: Sequence[Candidate]) -> Opened | Plain:
    """The first answer with content. Raises UpstreamFailure with the shortest wait that any upstream asked for."""
    retry_after: int | None = None
    last: UpstreamFailure | None = None
    for route, upstream in candidates:
        body = walk.dialect.make_body(walk.body, request, upstream_model=route.upstream_model)
        started = perf_counter()
        if walk.call.attempts:
            walk.marks.attempt_started = started  # what lies before it is the stage `failover`
        walk.upstream = upstream
        attempt = Attempt(upstream.id, upstream.name, route.upstream_model)
        walk.call.attempts.append(attempt)
        try:
            opened = await _attempt(walk, upstream, body, request)
        except UpstreamFailure as failure:
            walk.marks.headers = perf_counter()  # whatever kept it, it was a wait for this upstream
            attempt.kind, attempt.http_status = failure.kind.value, failure.http_status
            if failure.retry_after_s is not None:
                retry_after = min(failure.retry_after_s, retry_after or failure.retry_after_s)
            last = failure
            if not failure.try_next:
                break
        except asyncio.CancelledError:
            walk.marks.headers = perf_counter()
            attempt.kind = "client_gone"
            raise
        else:
            attempt.http_status = 200
            _take_marks(walk, opened)
            return opened
        finally:
            attempt.ms = (perf_counter() - started) * 1000
    assert last is not None
    if last.try_next and retry_after is not None:
        last.retry_after_s = retry_after
    raise last


async def _attempt(
    walk: Walk, upstream: UpstreamState, body: Sequence[Buffer], request: Request
) -> Opened | Plain:
    upstreams, dialect = walk.stations.upstreams, walk.dialect
    hops = hop_lines(walk.call.hops) if walk.call.hops else b""
    if not request.stream or dialect.make_stream is None:
        return await upstreams.fetch_plain(upstream, dialect, body, passed_hops=hops)
    walk.stream = dialect.make_stream(client_model=request.model, keep_usage=request.asks_usage)
    return await upstreams.open_stream(upstream, dialect, body, walk.stream, passed_hops=hops)


def _take_marks(walk: Walk, opened: Opened | Plain) -> None:
    exchange, marks = opened.exchange, walk.marks
    marks.connected, marks.sent, marks.headers = exchange.connected, exchange.sent, exchange.headers_at
    if isinstance(opened, Opened):
        marks.first_token = opened.first_content
    else:
        marks.upstream_done = opened.done
    request_id = exchange.header(b"x-request-id")
    if request_id is not None:
        walk.call.upstream_request_id = request_id[:200].decode("latin-1")
