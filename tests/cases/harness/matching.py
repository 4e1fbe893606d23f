"""Pure. Pointers and matchers, as the README of the cases defines them (section 4)."""

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["MISSING", "mismatches", "point", "unmatched"]


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
"""What a pointer gives that leads nowhere."""

_TYPES: dict[str, Any] = {
    "string": str,
    "object": dict,
    "array": list,
    "null": type(None),
    "boolean": bool,
}


def point(document: Any, pointer: str) -> Any:
    """What an RFC 6901 pointer leads to, or MISSING. On arrays -1, -2 … count from the end.

    >>> point({"a": [1, {"b/c": 2}]}, "/a/-1/b~1c"), point({"a": 1}, "/b"), point(5, "")
    (2, nothing, 5)
    """
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif (
            isinstance(document, list)
            and re.fullmatch(r"-?\d+", name)
            and -len(document) <= int(name) < len(document)
        ):
            document = document[int(name)]
        else:
            return MISSING
    return document


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(expected: Any, value: Any) -> bool:
    """JSON equality: numbers by value, and true is not 1."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(
            _equal(expected[name], value[name]) for name in expected
        )
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(_equal, expected, value))
    return bool(expected == value)


def _contains(expected: Any, value: Any) -> bool:
    if isinstance(value, str):
        return isinstance(expected, str) and expected in value
    if isinstance(value, list):
        return any(unmatched(expected, item) is None for item in value)
    if isinstance(value, dict) and isinstance(expected, dict):
        return all(unmatched(part, value.get(name, MISSING)) is None for name, part in expected.items())
    return False


def _is_json(expected: Any, value: Any) -> bool:
    try:
        return isinstance(value, str) and _equal(expected, json.loads(value))
    except ValueError:
        return False


def _is_type(name: str, value: Any) -> bool:
    if name == "number":
        return _is_number(value)
    if name == "integer":
        return _is_number(value) and value == int(value)
    return isinstance(value, _TYPES[name])


def _holds(form: str, expected: Any, value: Any) -> bool:
    match form:
        case "$exists":
            return (value is not MISSING) is bool(expected)
        case "$absent":
            return (value is MISSING) is bool(expected)
        case "$null":
            return (value is MISSING or value is None) is bool(expected)
        case "$not":
            return unmatched(expected, value) is not None
        case "$all":
            return all(unmatched(part, value) is None for part in expected)
        case "$any":
            return any(unmatched(part, value) is None for part in expected)
    if value is MISSING:
        return False
    match form:
        case "$type":
            return _is_type(expected, value)
        case "$regex":
            return isinstance(value, str) and re.search(expected, value) is not None
        case "$contains":
            return _contains(expected, value)
        case "$json":
            return _is_json(expected, value)
        case "$len":
            return isinstance(value, str | list | dict) and len(value) == expected
        case "$min":
            return _is_number(value) and value >= expected
        case "$max":
            return _is_number(value) and value <= expected
        case "$in":
            return any(_equal(item, value) for item in expected)
    raise ValueError(f"unknown matcher {form}")


def unmatched(matcher: Any, value: Any) -> str | None:
    """Why `value` does not match, or None if it does. Raises ValueError for a matcher that the README does not name.

    >>> unmatched({"$min": 1, "$max": 3}, 2), unmatched("a", MISSING)
    (None, "expected 'a', found nothing")
    """
    if isinstance(matcher, dict) and any(name.startswith("$") for name in matcher):
        failed = {form: part for form, part in matcher.items() if not _holds(form, part, value)}
        return f"expected {failed}, found {value!r}" if failed else None
    if value is not MISSING and _equal(matcher, value):
        return None
    return f"expected {matcher!r}, found {value!r}"


def mismatches(pointers: Mapping[str, Any], document: Any) -> list[str]:
    """What does not hold of `{pointer: matcher}` on a document."""
    found = [(pointer, unmatched(matcher, point(document, pointer))) for pointer, matcher in pointers.items()]
    return [f"{pointer}: {reason}" for pointer, reason in found if reason is not None]
