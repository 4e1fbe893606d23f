"""Pure. One call on its way through the stations: what is known of it, filled in as it walks.

The body is here exactly once; translations and attempts share its memory. `is_closed` guards the books: whoever
finishes a call first is the only one who does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Attempt", "Call"]


@dataclass(slots=True)
class Attempt:
    """One upstream that was tried. `ms` is how long it took to fail, or to answer with content."""

    upstream_id: int
    upstream: str
    upstream_model: str
    kind: str = ""
    http_status: int | None = None
    ms: float = 0.0

    def shown(self) -> dict[str, object]:
        """As it stands in the call record."""
        entry: dict[str, object] = {
            "upstream": self.upstream,
            "upstream_model": self.upstream_model,
            "result": self.kind or "ok",
            "ms": round(self.ms, 3),
        }
        if self.http_status is not None:
            entry["http_status"] = self.http_status
        return entry


@dataclass(slots=True)
class Call:
    """`input_held`, `output_held`: tokens that the hold covers; `committed`: first content has gone to the client;
    `hops`: relays that the call has come through.
    """

    id: str
    endpoint: str
    protocol: str
    client: str = ""
    task_id: str = ""
    organization_id: int = 0
    key_id: int = 0
    member_id: int | None = None
    currency: str = ""
    model: str = ""
    stream: bool = False
    reasoning_effort: str = ""
    service_tier: str = ""
    body_bytes: int = 0
    hold_nano: int = 0
    output_held: int = 0
    input_held: int = 0
    context_tokens: int = 0
    has_hold: bool = False
    committed: bool = False
    is_closed: bool = False
    is_interrupted: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    upstream_request_id: str = ""
    answered_model: str = ""
    hops: Sequence[bytes] = ()
