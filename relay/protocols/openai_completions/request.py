"""Pure. Read what the relay needs of a completions request, and make the body that goes upstream by the smallest edit.

Every prompt of a list gets its own `n` answers, and an upstream that is told `best_of` writes that many and shows the
best: all of them are output (protocols.md 1.7). The prompt itself is counted once, however many answers it gets.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from relay.errors import ErrorKind, Refusal
from relay.protocols.dialect import Request
from relay.protocols.json_splice import Buffer, Edit, splice
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
from relay.protocols.openai_inputs import count_inputs

__all__ = ["CompletionRequest", "parse_request", "upstream_body"]

_HELD_FOR = ("stream", "max_tokens", "n", "best_of", "echo")


class _Body(msgspec.Struct):
    model: str
    prompt: msgspec.Raw
    stream: bool | None = None
    stream_options: StreamOptions | UnsetType | None = UNSET
    max_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    echo: bool | None = None
    task_id: str | UnsetType | None = UNSET


_decoder = msgspec.json.Decoder(_Body)


class CompletionRequest(msgspec.Struct, frozen=True):
    """The routing fields of one request.

    `inputs`: prompts, each with a window of its own. `choices`: answers that are written, to all of them together.
    `output_ceiling`: the client's own limit on output, all answers together; 0 is one (with `echo`: only count).
    `echo_bytes`: how much of each answer may be the prompt again.
    """

    model: str
    stream: bool
    asks_usage: bool
    output_ceiling: int | None
    choices: int
    inputs: int
    task_id: str
    has_stream_options: bool
    has_task_id: bool
    echo_bytes: int = 0
    reasoning_effort: str = ""
    service_tier: str = ""


def parse_request(body: Buffer) -> CompletionRequest:
    """The routing fields of `body`. Raises Refusal (bad_json, bad_field) naming the field at fault."""
    parsed = decode_body(_decoder, body)
    if not parsed.model:
        raise Refusal(ErrorKind.BAD_FIELD, "'model' must name a model.", param="model")
    given = [name for name in _HELD_FOR if getattr(parsed, name) is not None]
    refuse_twice(body, ["model", "prompt", *given])
    prompt = memoryview(parsed.prompt)
    # The specification lets `prompt` be null: the beginning of a document.
    inputs = 1 if bytes(prompt[:4]) == b"null" else count_inputs("prompt", prompt)
    shown = 1 if parsed.n is None else in_bounds("n", parsed.n, 1, MAX_CHOICES)
    best_of = 0 if parsed.best_of is None else in_bounds("best_of", parsed.best_of, 0, MAX_CHOICES)
    written = max(shown, best_of) * inputs
    limit = None if parsed.max_tokens is None else in_bounds("max_tokens", parsed.max_tokens, 0, MAX_TOKENS)
    options, task_id = parsed.stream_options, parsed.task_id
    return CompletionRequest(
        model=parsed.model,
        stream=bool(parsed.stream),
        asks_usage=bool(options and options.include_usage),
        output_ceiling=None if limit is None else limit * written,
        choices=written,
        inputs=inputs,
        task_id=(task_id or "")[:200],
        has_stream_options=options is not UNSET,
        has_task_id=task_id is not UNSET,
        echo_bytes=len(prompt) * shown if parsed.echo else 0,
    )


def upstream_body(body: bytes | bytearray, request: Request, *, upstream_model: str) -> Sequence[Buffer]:
    """The pieces to send upstream; they share the body's memory. Raises Refusal if a field of ours stands twice."""
    edits: list[Edit] = model_edits(body, request.model, upstream_model)
    if request.stream and not request.asks_usage:
        edits.append(usage_edit(body, has_options=request.has_stream_options))
    if request.has_task_id:
        edits.append(drop_edit(body, "task_id"))
    return splice(body, edits)
