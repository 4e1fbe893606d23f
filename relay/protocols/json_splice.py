"""Pure. Edit a JSON object's top-level members in place, without parsing or writing the rest of it.

The bytes outside the edit stay as the client sent them: key order, number spelling and white space belong to the
prefix that upstreams cache. Every function takes a body that a JSON parser has already accepted; that is what makes
looking for `"name"` followed by a colon safe: inside a string its quotes would be escaped. Of a name with escapes
(`"\\u006dodel"`) the same holds, and it is found too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

__all__ = [
    "NOWHERE",
    "DuplicateMember",
    "Edit",
    "Member",
    "delete_edit",
    "find_member",
    "insert_first_edit",
    "span_of",
    "splice",
]

Buffer = bytes | bytearray | memoryview
Edit = tuple[int, int, bytes]
"""Replace the bytes from start to end by the third."""
Member = tuple[int, int, int]
"""Where the key's quote, the value's first byte and the byte behind the value stand."""

Span = tuple[int, int]
NOWHERE: Span = (0, 0)

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^,\]}\s]++', re.DOTALL)


class DuplicateMember(ValueError):
    """A top-level member stands twice: readers would disagree on which one counts."""


def _depth_at(body: bytes | bytearray, at: int, known_at: int, known_depth: int) -> int:
    """How many brackets are open at `at`, counted from a place before it where that is known, or from the end."""
    depth = 0
    if at - known_at <= len(body) - at:
        for token in _TOKEN.finditer(body, known_at, at):
            first = token.group()[0]
            depth += 1 if first in b"{[" else -1 if first in b"}]" else 0
        return known_depth + depth
    for token in _TOKEN.finditer(body, at):
        first = token.group()[0]
        depth += 1 if first in b"}]" else -1 if first in b"{[" else 0
    return depth


def _value_end(body: bytes | bytearray, start: int) -> int:
    if body[start : start + 1] not in (b"{", b"["):
        match = _SCALAR.match(body, start)
        return match.end() if match else start
    depth = 0
    for token in _TOKEN.finditer(body, start):
        first = token.group()[0]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return len(body)


@lru_cache(maxsize=64)
def _spellings(name: str) -> re.Pattern[bytes]:
    """The name in its quotes, each of its letters plain or as an escape."""
    letters = (f"(?:{re.escape(letter)}|\\\\u00(?i:{ord(letter):02x}))" for letter in name)
    return re.compile(f'"{"".join(letters)}"'.encode())


def _candidates(body: bytes | bytearray, name: str, but: Span) -> Iterator[tuple[int, int]]:
    """Where the name stands in quotes, from quote to quote."""
    needle = f'"{name}"'.encode()
    for low, high in ((0, but[0]), (but[1], len(body))):
        if body.find(b"\\u00", low, high) >= 0:
            # A parser reads "\\u006dodel" as "model": who looks for the plain spelling only is told another name.
            for match in _spellings(name).finditer(body, low, high):
                yield match.span()
            continue
        at = body.find(needle, low, high)
        while at >= 0:
            yield at, at + len(needle)
            at = body.find(needle, at + len(needle), high)


def span_of(body: bytes | bytearray, name: str, value: Buffer) -> Span:
    """Where the value of a large member stands, so that nobody looks for others inside it; NOWHERE if that is not told
    at a glance. `value` is what a parser read: an array or object.

    Whatever is found is safe to leave out, also where it is not that member: the same text stands inside of another
    value then, or its quotes would be read the other way round and no name could stand in it (a bare word is no JSON).

    >>> span_of(b'{"model":"m","messages":[1]}', "messages", b"[1]")
    (24, 27)
    """
    at = body.find(f'"{name}"'.encode())
    if at < 0:
        return NOWHERE
    start = body.find(memoryview(value)[:1], at)
    return (start, start + len(value)) if start > 0 and body.startswith(value, start) else NOWHERE


def find_member(body: bytes | bytearray, name: str, but: Span = NOWHERE) -> Member | None:
    """The top-level member `name` (ASCII), or None. Raises DuplicateMember if it stands twice, also with escapes.

    It is not looked for in `but` (see `span_of`), which saves most of the time where that is most of the body.

    >>> find_member(b'{"a": {"model": 1}, "model": "x"}', "model")
    (20, 29, 32)
    """
    found: Member | None = None
    known_at = depth = 0
    for at, end in _candidates(body, name, but):
        colon = _SPACE.match(body, end)
        if colon is None or body[colon.end() : colon.end() + 1] != b":" or body[at - 1 : at] == b"\\":
            continue
        # From one candidate to the next: a body full of nested ones is still read only once.
        known_at, depth = at, _depth_at(body, at, known_at, depth)
        if depth == 1:
            value = _SPACE.match(body, colon.end() + 1)
            start = value.end() if value else colon.end() + 1
            if found is not None:
                raise DuplicateMember(name)
            found = (at, start, _value_end(body, start))
    return found


def insert_first_edit(body: bytes | bytearray, member: bytes) -> Edit:
    """An edit that puts `member` (`"name":value`, no comma) in front of the others. The object must not be empty."""
    at = body.index(b"{") + 1
    return at, at, member + b","


def delete_edit(body: bytes | bytearray, member: Member) -> Edit:
    """An edit that takes a member out, with the comma behind or, for the last one, in front of it."""
    start, _, end = member
    after = _SPACE.match(body, end)
    comma = after.end() if after else end
    if body[comma : comma + 1] == b",":
        behind = _SPACE.match(body, comma + 1)
        return start, behind.end() if behind else comma + 1, b""
    before = start
    while before > 0 and body[before - 1 : before] in (b" ", b"\t", b"\r", b"\n"):
        before -= 1
    if body[before - 1 : before] == b",":
        before -= 1
    return before, end, b""


def splice(body: Buffer, edits: Iterable[Edit]) -> list[Buffer]:
    """The body with its edits made, as pieces that share the body's memory. Edits must not overlap.

    >>> [bytes(piece) for piece in splice(b"abcdef", [(4, 5, b"X"), (1, 2, b"")])]
    [b'a', b'cd', b'X', b'f']
    """
    ordered: Sequence[Edit] = sorted(edits)
    if not ordered:
        return [body]
    view = memoryview(body)
    pieces: list[Buffer] = []
    at = 0
    for start, end, replacement in ordered:
        if start > at:
            pieces.append(view[at:start])
        if replacement:
            pieces.append(replacement)
        at = end
    if at < len(view):
        pieces.append(view[at:])
    return pieces
