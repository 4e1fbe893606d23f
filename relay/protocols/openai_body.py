"""Pure. What the request bodies of the OpenAI forms have in common: how they are decoded, refused and edited.

A form names its routing fields in a msgspec struct and decodes only those; texts are neither walked nor copied. The
edits are those of protocols.md 0.3, and the bytes outside of them stay as the client sent them.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

import msgspec
import orjson

from relay.errors import ErrorKind, Refusal
from relay.protocols.json_splice import (
    NOWHERE,
    Buffer,
    DuplicateMember,
    Edit,
    Member,
    Span,
    delete_edit,
    find_member,
    insert_first_edit,
)

__all__ = [
    "MAX_CHOICES",
    "MAX_TOKENS",
    "StreamOptions",
    "decode_body",
    "drop_edit",
    "in_bounds",
    "model_edits",
    "refuse_twice",
    "usage_edit",
]

MAX_TOKENS = 10_000_000
MAX_CHOICES = 128

T = TypeVar("T")


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


def decode_body(decoder: msgspec.json.Decoder[T], body: Buffer) -> T:
    """The routing fields of `body`. Raises Refusal (bad_json, bad_field) naming the field at fault."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise _bad_field(str(exc)) from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Refusal(ErrorKind.BAD_JSON, f"The body is not valid JSON: {_bounded(str(exc))}.") from exc
    except RecursionError as exc:
        raise Refusal(ErrorKind.BAD_JSON, "The body is nested too deeply.") from exc


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


def in_bounds(name: str, value: int, low: int, high: int) -> int:
    """The value. Raises Refusal if it is out of bounds.

    >>> in_bounds("n", 3, 1, 128)
    3
    """
    if not low <= value <= high:
        raise Refusal(ErrorKind.BAD_FIELD, f"'{name}' must be between {low} and {high}.", param=name)
    return value


def refuse_twice(body: Buffer, names: Iterable[str], but: Span = NOWHERE) -> None:
    """Refuse a body in which one of these fields stands twice: readers differ on which of the two counts.

    `but`: see `json_splice.span_of`.
    """
    whole = bytes(body) if isinstance(body, memoryview) else body
    rest = whole[: but[0]] + whole[but[1] :] if but[1] else whole
    has_escapes = b"\\u00" in rest
    for name in names:
        if not has_escapes and rest.count(_in_quotes(name)) <= 1:
            continue  # not even twice anywhere
        try:
            find_member(whole, name, but)
        except DuplicateMember as exc:
            raise _stands_twice(name) from exc


@lru_cache(maxsize=64)
def _in_quotes(name: str) -> bytes:
    return f'"{name}"'.encode()


def model_edits(body: bytes | bytearray, model: str, upstream_model: str, but: Span = NOWHERE) -> list[Edit]:
    """Put the upstream's name of the model in place of the client's.

    >>> model_edits(b'{"model":"m"}', "m", "up"), model_edits(b'{"model":"m"}', "m", "m")
    ([(9, 12, b'"up"')], [])
    """
    if upstream_model == model:
        return []
    _, start, end = _member(body, "model", but)
    return [(start, end, orjson.dumps(upstream_model))]


def usage_edit(body: bytes | bytearray, *, has_options: bool, but: Span = NOWHERE) -> Edit:
    """Ask for the usage of a stream, beside the options that the client has given.

    >>> usage_edit(b'{"model":"m"}', has_options=False)
    (1, 1, b'"stream_options":{"include_usage":true},')
    """
    if not has_options:
        return insert_first_edit(body, b'"stream_options":{"include_usage":true}')
    _, start, end = _member(body, "stream_options", but)
    options = orjson.loads(bytes(body[start:end])) or {}
    return start, end, orjson.dumps({**options, "include_usage": True})


def drop_edit(body: bytes | bytearray, name: str, but: Span = NOWHERE) -> Edit:
    """Take a member of ours out.

    >>> drop_edit(b'{"task_id":"t","model":"m"}', "task_id")
    (1, 15, b'')
    """
    return delete_edit(body, _member(body, name, but))


def _member(body: bytes | bytearray, name: str, but: Span) -> Member:
    """A member that the decoder has seen. Raises Refusal if it stands twice."""
    try:
        member = find_member(body, name, but)
    except DuplicateMember as exc:
        raise _stands_twice(name) from exc
    assert member is not None
    return member


def _stands_twice(name: str) -> Refusal:
    return Refusal(ErrorKind.BAD_FIELD, f"'{name}' stands twice in the body.", param=name)
