"""Pure. How much a `prompt` (completions) or an `input` (embeddings) asks for: a text, tokens, or a list of either.

The hold depends on it: each text of a list may fill the model's window, and gets answers of its own. Nothing is
decoded, since a list of numbers as Python objects would be eight times the size of the body.
"""

import re

from relay.errors import ErrorKind, Refusal

__all__ = ["MAX_INPUTS", "count_inputs"]

# What OpenAI takes in one embeddings call (protocols.md 1.3); the same for prompts.
MAX_INPUTS = 2048

_OPENING = re.compile(rb"\[[ \t\r\n]*+(.)", re.DOTALL)
_DIGITS_AND_SPACE = b"0123456789 \t\r\n"
_TOKENS = re.compile(rb"\[,*+\]\Z")
_TOKEN_LISTS = re.compile(rb"\[\[,*+\](?:,\[,*+\])*+\]\Z")


def count_inputs(name: str, raw: bytes | memoryview) -> int:
    """How many inputs the JSON value of the field `name` holds, from 1 to MAX_INPUTS.

    Raises Refusal (bad_field) for a value of another shape, an empty list, or a list that is too long. `raw` is JSON
    that a parser has accepted.

    >>> [count_inputs("input", raw) for raw in (b'"one"', b'["one", "two"]', b"[1, 2, 3]", b"[[1, 2], [3]]")]
    [1, 2, 1, 2]
    """
    if raw[:1] == b'"':
        return 1
    if raw[:1] != b"[":
        raise _wrong(name)
    whole = bytes(raw)
    opening = _OPENING.match(whole)
    assert opening is not None  # it is JSON, and a list
    if opening.group(1) == b'"':
        return _count_strings(name, whole)
    if opening.group(1) == b"]":
        raise Refusal(ErrorKind.BAD_FIELD, f"'{name}' must not be an empty list.", param=name)
    bones = whole.translate(None, _DIGITS_AND_SPACE)
    if _TOKENS.match(bones):
        return 1
    # The number of lists is known before they are looked at one by one.
    count = bones.count(b"[") - 1
    if count > MAX_INPUTS:
        raise _too_many(name)
    if not _TOKEN_LISTS.match(bones):
        raise _wrong(name)
    return count


def _count_strings(name: str, raw: bytes) -> int:
    # Without escaped backslashes, and then without escaped quotes, every quote begins or ends a string.
    bones = raw.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in raw else raw
    count = bones.count(b'"') // 2
    if count > MAX_INPUTS:
        raise _too_many(name)
    first, *between, last = bones.split(b'"')[::2]
    if first.strip() != b"[" or last.strip() != b"]" or any(part.strip() != b"," for part in between):
        raise _wrong(name)
    return count


def _too_many(name: str) -> Refusal:
    return Refusal(ErrorKind.BAD_FIELD, f"'{name}' holds more than {MAX_INPUTS} inputs.", param=name)


def _wrong(name: str) -> Refusal:
    return Refusal(
        ErrorKind.BAD_FIELD,
        f"'{name}' must be a string, a list of strings, a list of tokens or a list of lists of tokens.",
        param=name,
    )
