"""Pure. Server-sent events as bytes: cut a stream into raw events and read their data, at any split of the input.

Lines end at `\\n`, `\\r\\n` or `\\r` and nowhere else (U+2028 and U+0085 inside JSON are text), an event ends at an
empty line, and an event without a last empty line at the end of the body counts (WHATWG HTML, 9.2.6, read 2026-11).
Bytes are never decoded here, so a character split between two reads is no concern.
"""

import re

__all__ = ["EventTooLarge", "SseSplitter", "event_data"]

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")


class EventTooLarge(ValueError):
    """One event grew beyond `MAX_EVENT_BYTES`."""


class SseSplitter:
    """Cuts a byte stream into raw events, each with its empty line. Their bytes stay, but all line ends become `\\n`.

    >>> splitter = SseSplitter()
    >>> splitter.feed(b"data: 1\\n\\nda"), splitter.feed(b"ta: 2\\r\\n\\r\\n"), splitter.finish()
    ([b'data: 1\\n\\n'], [b'data: 2\\n\\n'], b'')
    """

    __slots__ = ("_after_cr", "_at_edge", "_at_start", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._at_start = True
        self._after_cr = False
        self._at_edge = True  # either of the two

    def feed(self, data: bytes) -> list[bytes]:
        """The raw events that `data` completed. Raises EventTooLarge."""
        if self._at_edge:
            data = self._cross_edge(data)
        rest = self._rest
        if rest:
            # Only the last line end of what was kept can be one half of an empty line: looking at all of it again
            # would make an event in many pieces cost the square of its size.
            seen = max(0, len(rest) - 2)
            rest += data
            if rest.find(b"\n\n", seen) < 0 and (
                rest.find(b"\r", seen) < 0 or _BLANK.search(rest, seen) is None
            ):
                self._check_size(len(rest))
                return []
            data = bytes(rest)
            rest.clear()
        if b"\r" in data:
            return self._cut_any(data)
        end = data.rfind(b"\n\n")
        if end < 0:
            self._keep(data)
            return []
        if end and data[end - 1] == 0x0A:
            return self._cut_any(data)
        if end + 2 < len(data):
            self._keep(data[end + 2 :])
            data = data[: end + 2]
        if data.find(b"\n\n") == end:
            return [data]
        return [event + b"\n\n" for event in data[:-2].split(b"\n\n")]

    def _cross_edge(self, data: bytes) -> bytes:
        """Leave out a byte order mark at the start, and a line feed that belongs to the CR before it."""
        if self._at_start:
            data = bytes(self._rest) + data
            self._rest.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest += data
                return b""
            self._at_start = False
            data = data.removeprefix(_BOM)
        elif data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        self._at_edge = self._after_cr
        return data

    def _cut_any(self, data: bytes) -> list[bytes]:
        events = []
        start = 0
        while (match := _BLANK.search(data, start)) is not None:
            events.append(_with_line_feeds(data[start : match.end()]))
            start = match.end()
        if start == len(data) and data.endswith(b"\r"):
            # The event is complete, also if this CR turns out to be the first half of a line end.
            self._after_cr = self._at_edge = True
        self._keep(data[start:])
        return events

    def _keep(self, rest: bytes) -> None:
        self._check_size(len(rest))
        self._rest += rest

    def _check_size(self, size: int) -> None:
        if size > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event of more than {MAX_EVENT_BYTES} bytes")

    def finish(self) -> bytes:
        """The event that the body ended in without its empty line, made whole, or nothing."""
        rest = _with_line_feeds(bytes(self._rest)).rstrip(b"\n")
        self._rest.clear()
        return rest + b"\n\n" if rest else b""


def _with_line_feeds(event: bytes) -> bytes:
    return _LINE.sub(b"\n", event) if b"\r" in event else event


def event_data(raw: bytes) -> bytes | None:
    """The joined `data` lines of one raw event of the splitter's, or None if it has none (a comment, other fields).

    >>> event_data(b": hello\\n\\n"), event_data(b"data:a\\ndata: b\\n\\n")
    (None, b'a\\nb')
    """
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2:
        return raw[6:-2]
    lines = []
    for line in raw.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None
