"""Pure. Read what the relay needs of an embeddings request, and make the body that goes upstream by the smallest edit.

`encoding_format` and `dimensions` pass untouched: the official Python SDK asks for base64 when its caller named no
format, and decodes it (protocols.md 1.3).
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from relay.errors import ErrorKind, Refusal
from relay.protocols.dialect import Request
from relay.protocols.json_splice import Buffer, Edit, splice
from relay.protocols.openai_body import decode_body, drop_edit, model_edits, refuse_twice
from relay.protocols.openai_inputs import count_inputs

__all__ = ["EmbeddingRequest", "parse_request", "upstream_body"]


class _Body(msgspec.Struct):
    model: str
    input: msgspec.Raw
    task_id: str | UnsetType | None = UNSET


_decoder = msgspec.json.Decoder(_Body)


class EmbeddingRequest(msgspec.Struct, frozen=True):
    """The routing fields of one request. `inputs`: texts, each with a window of its own. There is no output."""

    model: str
    inputs: int
    task_id: str
    has_task_id: bool
    stream: bool = False
    asks_usage: bool = False
    has_stream_options: bool = False
    output_ceiling: int | None = 0
    choices: int = 0
    echo_bytes: int = 0
    reasoning_effort: str = ""
    service_tier: str = ""


def parse_request(body: Buffer) -> EmbeddingRequest:
    """The routing fields of `body`. Raises Refusal (bad_json, bad_field) naming the field at fault."""
    parsed = decode_body(_decoder, body)
    if not parsed.model:
        raise Refusal(ErrorKind.BAD_FIELD, "'model' must name a model.", param="model")
    refuse_twice(body, ("model", "input"))
    task_id = parsed.task_id
    return EmbeddingRequest(
        model=parsed.model,
        inputs=count_inputs("input", memoryview(parsed.input)),
        task_id=(task_id or "")[:200],
        has_task_id=task_id is not UNSET,
    )


def upstream_body(body: bytes | bytearray, request: Request, *, upstream_model: str) -> Sequence[Buffer]:
    """The pieces to send upstream; they share the body's memory. Raises Refusal if a field of ours stands twice."""
    edits: list[Edit] = model_edits(body, request.model, upstream_model)
    if request.has_task_id:
        edits.append(drop_edit(body, "task_id"))
    return splice(body, edits)
