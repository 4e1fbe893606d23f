"""Pure. Read what the relay needs of a chat request, and make the body that goes upstream by the smallest edit.

Only routing fields are decoded; messages and tools are neither walked nor copied. The edits (protocols.md 0.3): the
value of `model`, `stream_options.include_usage` where the client did not ask for it, and our own `task_id` taken out.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from relay.errors import ErrorKind, Refusal
from relay.protocols.dialect import Request
from relay.protocols.json_splice import NOWHERE, Buffer, Edit, Span, span_of, splice
from relay.protocols.openai_body import (
    MAX_CHOICES,
    MAX_TOKENS,
    StreamOptions,
    decode_body,
    drop_edit,
    in_bounds,
    model_edits,
    refuse_twice,
    usage_edit,
)

__all__ = ["ChatRequest", "parse_request", "upstream_body"]

# Below this it costs less to look at all of a body than to find out what may be left out.
SMALL_BYTES = 1_024


class _Body(msgspec.Struct):
    model: str
    messages: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    stream_options: StreamOptions | UnsetType | None = UNSET
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    n: int | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    task_id: str | UnsetType | None = UNSET


_decoder = msgspec.json.Decoder(_Body)


class ChatRequest(msgspec.Struct, frozen=True):
    """The routing fields of one request. `output_ceiling`: the client's own limit on output, all choices together;
    `messages_at`: where in the body nobody needs to look for other fields.
    """

    model: str
    stream: bool
    asks_usage: bool
    output_ceiling: int | None
    choices: int
    reasoning_effort: str
    service_tier: str
    task_id: str
    has_stream_options: bool
    has_task_id: bool
    inputs: int = 1
    echo_bytes: int = 0
    messages_at: Span = NOWHERE


def parse_request(body: Buffer) -> ChatRequest:
    """The routing fields of `body`. Raises Refusal (bad_json, bad_field) naming the field at fault."""
    parsed = decode_body(_decoder, body)
    if bytes(memoryview(parsed.messages)[:1]) != b"[":
        raise Refusal(ErrorKind.BAD_FIELD, "'messages' must be an array of messages.", param="messages")
    if not parsed.model:
        raise Refusal(ErrorKind.BAD_FIELD, "'model' must name a model.", param="model")
    whole = bytes(body) if isinstance(body, memoryview) else body
    messages_at = (
        span_of(whole, "messages", memoryview(parsed.messages)) if len(whole) > SMALL_BYTES else NOWHERE
    )
    refuse_twice(whole, _held_for(parsed), messages_at)
    choices = 1 if parsed.n is None else in_bounds("n", parsed.n, 1, MAX_CHOICES)
    # Both may be sent, and an upstream may obey either: the larger one is what the call can cost.
    limit = 0
    if parsed.max_completion_tokens is not None:
        limit = in_bounds("max_completion_tokens", parsed.max_completion_tokens, 1, MAX_TOKENS)
    if parsed.max_tokens is not None:
        limit = max(limit, in_bounds("max_tokens", parsed.max_tokens, 1, MAX_TOKENS))
    options, task_id = parsed.stream_options, parsed.task_id
    return ChatRequest(
        model=parsed.model,
        stream=bool(parsed.stream),
        asks_usage=bool(options and options.include_usage),
        output_ceiling=limit * choices if limit else None,
        choices=choices,
        reasoning_effort=(parsed.reasoning_effort or "")[:32],
        service_tier=(parsed.service_tier or "")[:32],
        task_id=(task_id or "")[:200],
        has_stream_options=options is not UNSET,
        has_task_id=task_id is not UNSET,
        messages_at=messages_at,
    )


def _held_for(parsed: _Body) -> list[str]:
    """The fields given that the hold depends on."""
    given = ["model"]
    if parsed.stream is not None:
        given.append("stream")
    if parsed.max_completion_tokens is not None:
        given.append("max_completion_tokens")
    if parsed.max_tokens is not None:
        given.append("max_tokens")
    if parsed.n is not None:
        given.append("n")
    return given


def upstream_body(body: bytes | bytearray, request: Request, *, upstream_model: str) -> Sequence[Buffer]:
    """The pieces to send upstream; they share the body's memory. Raises Refusal if a routing field stands twice."""
    but = request.messages_at if isinstance(request, ChatRequest) else NOWHERE
    edits: list[Edit] = model_edits(body, request.model, upstream_model, but)
    if request.stream and not request.asks_usage:
        edits.append(usage_edit(body, has_options=request.has_stream_options, but=but))
    if request.has_task_id:
        edits.append(drop_edit(body, "task_id", but))
    return splice(body, edits)
