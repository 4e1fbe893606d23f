"""Pure. What the relay journals about a call and `billing.ingest` writes down.

`CallRecord` has one field for every column of `UsageRecord` that the relay fills; the names are the same. It
travels as one JSON line of the journal, so fields are only ever added, each with a default, and a reader of
older lines still understands them.
"""

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec

__all__ = ["CallRecord", "created_at_of"]


class CallRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One finished (or interrupted) call. Token classes are disjoint; amounts are nano-units; times are
    milliseconds.
    """

    id: str
    organization_id: int
    key_id: int
    member_id: int | None = None
    task_id: str = ""
    client: str = ""
    endpoint: str = ""
    model: str = ""
    protocol: str = ""
    upstream_id: int | None = None
    upstream: str = ""
    upstream_model: str = ""
    answered_model: str = ""
    upstream_request_id: str = ""
    service_tier: str = ""
    reasoning_effort: str = ""
    stream: bool = False
    status: str = "ok"
    http_status: int = 200
    error_kind: str = ""
    end_reason: str = ""
    attempts: list[Any] = []  # objects, written as JSON as they are
    uncached_input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_30m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_type: str = ""
    usage_source: str = ""
    usage_flags: list[str] = []
    price_version: int | None = None
    amount_nano: int = 0
    currency: str = ""
    cost_nano: int = 0
    total_ms: float = 0.0
    ttft_ms: float | None = None
    ttfb_ms: float | None = None
    stages: dict[str, float] = {}


def created_at_of(call_id: str) -> datetime:
    """The moment inside a UUIDv7, in UTC to the millisecond. Raises ValueError for another kind of id."""
    parsed = uuid.UUID(call_id)
    if parsed.version != 7:
        raise ValueError(f"not a UUIDv7: {call_id}")
    return datetime.fromtimestamp((parsed.int >> 80) / 1000, UTC)
