"""Pure. One call on its way through the stations: what is known of it, filled in as it walks.

The body is here exactly once; translations and attempts share its memory. `is_closed` guards the books: whoever
finishes a call first is the only one who does.
"""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType, field

__all__ = ["Attempt", "Call"]


class Attempt(Struct):
    """One upstream that was tried, as it stands in the call record.

    `ms` is how long it took to fail, or to answer with content. Without `http_status` there was no answer at all.
    """

    upstream: str
    upstream_model: str
    result: str = "ok"
    ms: float = 0.0
    http_status: int | UnsetType = UNSET


class Call(Struct):
    """`input_held`, `output_held`: tokens that the hold covers; `committed`: first content has gone to the client;
    `is_gone`: the client has left; `hops`: relays that the call has come through.
    """

    id: str
    endpoint: str = ""
    protocol: str = ""
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
    is_gone: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    upstream_id: int | None = None
    upstream_request_id: str = ""
    answered_model: str = ""
    hops: Sequence[bytes] = ()
