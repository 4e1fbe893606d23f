"""Pure. Read what the relay needs of a chat request, and make the body that goes upstream by the smallest edit.

Only routing fields are decoded; messages and tools are neither walked nor copied. The edits (protocols.md 0.3): the
value of `model`, `stream_options.include_usage` where the client did not ask for it, and our own `task_id` taken out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from relay.errors import ErrorKind, Refusal
from relay.protocols.dialect import Request
from relay.protocols.json_splice import (
    Buffer,
    DuplicateMember,
    Edit,
    Member,
    delete_edit,
    find_member,
    insert_first_edit,
    splice,
    stands_once,
)

__all__ = ["ChatRequest", "parse_request", "upstream_body"]

MAX_TOKENS = 10_000_000
_HELD_FOR = ("stream", "max_completion_tokens", "max_tokens", "n")


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    model: str
    messages: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    stream_options: _StreamOptions | UnsetType | None = UNSET
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    n: int | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    task_id: str | UnsetType | None = UNSET


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The routing fields of one request. `output_ceiling`: the client's own limit on output, all choices together."""

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


def parse_request(body: Buffer) -> ChatRequest:
    """The routing fields of `body`. Raises Refusal (bad_json, bad_field) naming the field at fault."""
    try:
        parsed = _decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise _bad_field(str(exc)) from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Refusal(ErrorKind.BAD_JSON, f"The body is not valid JSON: {_bounded(str(exc))}.") from exc
    except RecursionError as exc:
        raise Refusal(ErrorKind.BAD_JSON, "The body is nested too deeply.") from exc
    if bytes(memoryview(parsed.messages)[:1]) != b"[":
        raise Refusal(ErrorKind.BAD_FIELD, "'messages' must be an array of messages.", param="messages")
    if not parsed.model:
        raise Refusal(ErrorKind.BAD_FIELD, "'model' must name a model.", param="model")
    _refuse_twice(body, parsed)
    choices = _in_bounds("n", parsed.n, 1, 128) or 1
    # Both may be sent, and an upstream may obey either: the larger one is what the call can cost.
    limit = max(
        _in_bounds("max_completion_tokens", parsed.max_completion_tokens, 1, MAX_TOKENS) or 0,
        _in_bounds("max_tokens", parsed.max_tokens, 1, MAX_TOKENS) or 0,
    )
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
    )


def _refuse_twice(body: Buffer, parsed: _Body) -> None:
    """Refuse a body in which a field that the hold depends on stands twice: readers differ on which one counts."""
    given = ["model"]
    given += [name for name in _HELD_FOR if getattr(parsed, name) is not None]
    whole = bytes(body) if isinstance(body, memoryview) else body
    for name in given:
        if not stands_once(whole, name):
            try:
                find_member(whole, name)
            except DuplicateMember as exc:
                message = f"'{name}' stands twice in the body."
                raise Refusal(ErrorKind.BAD_FIELD, message, param=name) from exc


def _in_bounds(name: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and not low <= value <= high:
        raise Refusal(ErrorKind.BAD_FIELD, f"'{name}' must be between {low} and {high}.", param=name)
    return value


def _bounded(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


def _bad_field(text: str) -> Refusal:
    """msgspec says "Expected `str`, got `int` - at `$.model`" or "Object missing required field `model`"."""
    reason, _, path = text.partition(" - at `$")
    param = path.strip("`.") or None
    if "missing required field" in reason:
        param = reason.rsplit("`", 2)[1]
        return Refusal(ErrorKind.BAD_FIELD, f"Missing required parameter: '{param}'.", param=param)
    if param is None:
        return Refusal(ErrorKind.BAD_FIELD, "The body must be a JSON object.")
    return Refusal(
        ErrorKind.BAD_FIELD, f"Invalid value of '{param}': {reason.lower().replace('`', '')}.", param=param
    )


def upstream_body(body: bytes | bytearray, request: Request, *, upstream_model: str) -> Sequence[Buffer]:
    """The pieces to send upstream; they share the body's memory. Raises Refusal if a routing field stands twice."""
    edits: list[Edit] = []
    try:
        if upstream_model != request.model:
            _, start, end = _member(body, "model")
            edits.append((start, end, orjson.dumps(upstream_model)))
        elif not stands_once(body, "model"):
            _member(body, "model")
        if request.stream and not request.asks_usage:
            if request.has_stream_options:
                edits.append(_with_usage(body))
            else:
                edits.append(insert_first_edit(body, b'"stream_options":{"include_usage":true}'))
        if request.has_task_id:
            edits.append(delete_edit(body, _member(body, "task_id")))
    except DuplicateMember as exc:
        name = str(exc)
        raise Refusal(ErrorKind.BAD_FIELD, f"'{name}' stands twice in the body.", param=name) from exc
    return splice(body, edits)


def _member(body: bytes | bytearray, name: str) -> Member:
    """A member that the decoder has seen."""
    member = find_member(body, name)
    assert member is not None
    return member


def _with_usage(body: bytes | bytearray) -> Edit:
    _, start, end = _member(body, "stream_options")
    options = orjson.loads(bytes(body[start:end])) or {}
    return start, end, orjson.dumps({**options, "include_usage": True})
