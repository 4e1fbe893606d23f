"""Pure. Server-sent events as bytes: cut a stream into raw events and read their data, at any split of the input.

Lines end at `\\n`, `\\r\\n` or `\\r` and nowhere else (U+2028 and U+0085 inside JSON are text), an event ends at an
empty line, and an event without a last empty line at the end of the body counts (WHATWG HTML, 9.2.6, read 2026-11).
Bytes are never decoded here, so a character split between two reads is no concern.
"""

import re

__all__ = ["EventTooLarge", "SseSplitter", "event_data"]

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")


class EventTooLarge(ValueError):
    """One event grew beyond `MAX_EVENT_BYTES`."""


class SseSplitter:
    """Cuts a byte stream into raw events, each with its own line ends.

    >>> splitter = SseSplitter()
    >>> splitter.feed(b"data: 1\\n\\nda"), splitter.feed(b"ta: 2\\n\\n"), splitter.finish()
    ([b'data: 1\\n\\n'], [b'data: 2\\n\\n'], b'')
    """

    __slots__ = ("_after_cr", "_rest", "_scanned")

    def __init__(self) -> None:
        self._rest = b""
        self._scanned = 0
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """The raw events that `data` completed. Raises EventTooLarge."""
        if self._after_cr and data:
            # The last event ended with a lone CR: an LF that follows belongs to it, not to the next one.
            self._after_cr = False
            if data[:1] == b"\n":
                data = data[1:]
        buffer = self._rest + data if self._rest else data
        if b"\r" not in buffer:
            return self._feed_lf(buffer)
        return self._feed_any(buffer)

    def _feed_lf(self, buffer: bytes) -> list[bytes]:
        end = buffer.rfind(b"\n\n")
        if end < 0:
            self._keep(buffer)
            return []
        if end + 2 == len(buffer):
            self._rest = b""
        else:
            self._keep(buffer[end + 2 :])
        complete = buffer[: end + 2]
        if complete.find(b"\n\n") == end:
            return [complete]
        return [event + b"\n\n" for event in complete[:-2].split(b"\n\n")]

    def _feed_any(self, buffer: bytes) -> list[bytes]:
        events = []
        start = 0
        while (match := _BLANK.search(buffer, start)) is not None:
            end = match.end()
            if end == len(buffer) and buffer.endswith(b"\r"):
                # "\r\n\r" may be the first half of "\r\n\r\n": the event is complete either way.
                self._after_cr = True
            events.append(buffer[start:end])
            start = end
        self._keep(buffer[start:])
        return events

    def _keep(self, rest: bytes) -> None:
        if len(rest) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event of more than {MAX_EVENT_BYTES} bytes")
        self._rest = rest

    def finish(self) -> bytes:
        """What is left at the end of the body: an event without its empty line, or nothing."""
        rest, self._rest = self._rest, b""
        return rest if rest.strip(b"\r\n") else b""


def event_data(raw: bytes) -> bytes | None:
    """The joined `data` lines of one raw event, or None if it has none (a comment, or other fields only).

    >>> event_data(b": hello\\n\\n"), event_data(b"data:a\\ndata: b\\n\\n")
    (None, b'a\\nb')
    """
    if (
        raw.startswith(b"data: ")
        and raw.endswith(b"\n\n")
        and raw.find(b"\n") == len(raw) - 2
        and b"\r" not in raw
    ):
        return raw[6:-2]
    lines = []
    for line in _LINE.split(raw):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None
