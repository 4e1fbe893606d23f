"""Pure. Reads what completions call `prompt` and embeddings `input`: a text, tokens, or a list of either.

A token that comes as a number is four bytes of the rendered prompt, so it counts as the one token that it is.
"""

from typing import NoReturn

from practice.refusal import Refusal
from practice.tokens import BYTES_PER_TOKEN

MAX_INPUTS = 2048
MAX_TOKEN_ID = 2**31


def read_inputs(body: dict[str, object], field: str) -> list[str | bytes]:
    """Pure. The inputs in order: texts as they are, tokens as bytes. Raises Refusal (400) naming the field.

    >>> read_inputs({"input": ["a", "b"]}, "input"), read_inputs({"input": [1, 2]}, "input")
    (['a', 'b'], [b'\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x02'])
    """
    value = body.get(field)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        _refuse(field, "must be a text, tokens, or a list of either that is not empty")
    if isinstance(value[0], int):
        return [_render_tokens(value, field)]
    if len(value) > MAX_INPUTS:
        _refuse(field, f"holds more than {MAX_INPUTS} inputs")
    if all(isinstance(item, str) for item in value):
        return list(value)
    return [_render_tokens(item, field) for item in value]


def to_bytes(value: str | bytes) -> bytes:
    """Pure. An input as a model would see it."""
    return value.encode() if isinstance(value, str) else value


def join_parts(parts: tuple[bytes, ...]) -> bytes:
    """Pure. All inputs as one prompt, which counts as many tokens as they do one by one.

    >>> join_parts((b"a", b"bcdef"))
    b'a\\x00\\x00\\x00bcdef\\x00\\x00\\x00'
    """
    return b"".join(part + b"\0" * (-len(part) % BYTES_PER_TOKEN) for part in parts)


def last_text(inputs: list[str | bytes]) -> str:
    """Pure. The last input that is a text: where directives are looked for."""
    return next((value for value in reversed(inputs) if isinstance(value, str)), "")


def _render_tokens(value: object, field: str) -> bytes:
    if not isinstance(value, list) or not value:
        _refuse(field, "holds an item that is neither a text nor tokens")
    for token in value:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < MAX_TOKEN_ID:
            _refuse(field, "holds a token that is none")
    return b"".join(token.to_bytes(BYTES_PER_TOKEN, "big") for token in value)


def _refuse(field: str, why: str) -> NoReturn:
    raise Refusal(400, f"{field} {why}", param=field, code="invalid_type")
