"""What a process keeps for all calls (`Stations`), and what one call carries from station to station (`Walk`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from relay.admission.authenticate import Caller
from relay.admission.holds import Holds
from relay.call import Call
from relay.metering.estimate import Estimator
from relay.metering.finish import Books, Ending
from relay.metering.journal import Journal
from relay.metering.timing import Marks
from relay.protocols.dialect import AnswerStream, Dialect, Request
from relay.scheduler.choose import Draw
from relay.sink import Sink
from relay.state.loader import SnapshotLoader
from relay.state.snapshot import ModelState, UpstreamState
from relay.upstreams.attempt import Upstreams
from relay.upstreams.hop import Hops

__all__ = ["BEAT_S", "Stations", "Walk"]

# Chosen: below the shortest idle limit of proxies that the field reports (15 s), protocols.md 0.4.
BEAT_S = 10.0


@dataclass(slots=True)
class Stations:
    """One set per process. `beat_s`: silence after which a stream gets a comment."""

    loader: SnapshotLoader
    holds: Holds
    upstreams: Upstreams
    hops: Hops
    journal: Journal
    books: Books
    estimator: Estimator
    peppers: Sequence[bytes]
    draw: Draw
    beat_s: float = BEAT_S


class Walk(Struct):
    """One call on its way: each station fills in what the next ones need."""

    stations: Stations
    call: Call
    marks: Marks
    sink: Sink
    dialect: Dialect
    body: bytes | bytearray = b""
    caller: Caller | None = None
    request: Request | None = None
    model: ModelState | None = None
    upstream: UpstreamState | None = None
    stream: AnswerStream | None = None

    def close_books(self, ending: Ending) -> dict[str, float]:
        """Price, settle and journal; only the first ending counts. Returns the stages of the call."""
        model, upstream = self.model, self.upstream
        return self.stations.books.close(
            self.call,
            self.marks,
            ending,
            rates=model.rates if model else None,
            cost_multiplier=upstream.cost_multiplier if upstream else 0,
        )

    def ending(self, status: str, *, error_kind: str = "") -> Ending:
        """The ending of this call as far as its stream, if it has one, has come."""
        stream, http_status = self.stream, self.sink.status or 200
        if stream is None:
            return Ending(status, http_status, error_kind=error_kind)
        self.call.answered_model = stream.answered_model[:200]
        return Ending(
            status,
            http_status,
            error_kind=error_kind,
            end_reason=stream.end_reason[:48],
            usage=stream.usage,
            events=stream.content_events,
            service_tier=stream.service_tier,
        )
