"""Pure. What the answers of the OpenAI forms have in common: errors under status 200, counts, the model's name."""

from collections.abc import Mapping

import orjson

from relay.protocols.json_splice import DuplicateMember, find_member

__all__ = ["MOST_TOKENS", "answer_error", "is_count", "renaming", "token_count"]

Json = Mapping[str, object]

# Chosen: a thousand times the largest window on offer. What lies beyond is no count, and would be no amount either.
MOST_TOKENS = 10**9


def answer_error(answer: object) -> dict[str, object] | None:
    """The error inside an answer that came under status 200 (also MiniMax's `base_resp`), or None.

    >>> answer_error({"choices": []}), answer_error({"error": "no"})
    (None, {'message': 'no'})
    """
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    if error:
        return error if isinstance(error, dict) else {"message": str(error)}
    base = answer.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):
        return {"code": str(base.get("status_code")), "message": str(base.get("status_msg") or "")}
    return None


def is_count(value: object) -> bool:
    """Whether a reported value is a number of tokens within reason.

    >>> [is_count(value) for value in (0, 7, 7.0, None, True, -1, "7", 10**12)]
    [True, True, True, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def token_count(source: Json, name: str) -> int:
    """The number of tokens under this name; 0 for what is none.

    >>> token_count({"a": 3, "b": "x"}, "a"), token_count({"b": "x"}, "b"), token_count({}, "c")
    (3, 0, 0)
    """
    value = source.get(name)
    return int(value) if isinstance(value, int | float) and is_count(value) else 0


def renaming(data: bytes, client_model: str) -> tuple[bytes, bytes]:
    """What stands for what, so that the JSON in `data` (and all of its stream) names the model as the client does.

    Two empty values where nothing can be replaced: no name, or two of them.

    >>> renaming(b'{"model": "up"}', "mine")
    (b'"model": "up"', b'"model": "mine"')
    """
    try:
        member = find_member(data, "model")
    except DuplicateMember:
        return b"", b""
    if member is None:
        return b"", b""
    at, start, end = member
    return data[at:end], data[at:start] + orjson.dumps(client_model)
