"""Pure. Bytes on the wire: SSE events, HTTP heads, and the framing of a body, sound or broken.

A `BodyWriter` is fed parts of a body and gives what to write: it compresses, cuts into pieces and frames.
Each element it returns is one write.
"""

import zlib
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus

from practice.forms.form import Event

KEEP_ALIVE = ": keep-alive"
# How far a body with framing `short` stays behind its content-length.
SHORT_BYTES = 1_000_000


class Framing(Enum):
    """How the end of a body is told. SHORT and BAD_CHUNK are wrong on purpose."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    SHORT = "short"
    BAD_CHUNK = "bad_chunk"

    @property
    def closes(self) -> bool:
        """Whether the connection cannot be used again."""
        return self not in (Framing.LENGTH, Framing.CHUNKED)


def write_event(event: Event, line_end: str = "\n") -> bytes:
    """Pure. One SSE event.

    >>> from practice.forms.form import EventKind
    >>> write_event(Event(EventKind.CONTENT, b"{}", "ping"), "\\r\\n")
    b'event: ping\\r\\ndata: {}\\r\\n\\r\\n'
    """
    end = line_end.encode()
    name = b"event: " + event.name.encode() + end if event.name else b""
    return name + b"data: " + event.data + end + end


def write_comment(line_end: str = "\n") -> bytes:
    """Pure. A keep-alive comment, ended by a blank line as providers do."""
    return f"{KEEP_ALIVE}{line_end}{line_end}".encode()


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer, without those that tell the body's end."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    keep_alive: bool = True


@dataclass(slots=True)
class BodyWriter:
    """Frames one answer. `length` is the size of the body fed to it, for framings that announce it."""

    head: Head
    framing: Framing
    length: int = 0
    gzip: bool = False
    piece_bytes: int | None = None
    _packer: "zlib._Compress | None" = field(default=None, init=False)

    def start(self) -> bytes:
        """Status line and headers."""
        lines = [f"HTTP/1.1 {self.head.status} {_reason(self.head.status)}"]
        lines += [f"{name}: {value}" for name, value in self.head.headers]
        if self.gzip:
            self._packer = zlib.compressobj(wbits=31)
            lines.append("content-encoding: gzip")
        match self.framing:
            case Framing.CHUNKED | Framing.BAD_CHUNK:
                lines.append("transfer-encoding: chunked")
            case Framing.LENGTH:
                lines.append(f"content-length: {self.length}")
            case Framing.SHORT:
                lines.append(f"content-length: {self.length + SHORT_BYTES}")
        if not self.head.keep_alive or self.framing.closes:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def write(self, data: bytes) -> list[bytes]:
        """A part of the body."""
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        return self._frame(data)

    def end(self) -> list[bytes]:
        """What comes after the last part."""
        writes = self._frame(self._packer.flush()) if self._packer is not None else []
        if self.framing is Framing.CHUNKED:
            writes.append(b"0\r\n\r\n")
        return writes

    def spoil(self) -> bytes:
        """A chunk size that no reader understands."""
        return b"zz\r\n"

    def _frame(self, data: bytes) -> list[bytes]:
        size = self.piece_bytes or len(data)
        pieces = [data[start : start + size] for start in range(0, len(data), size)] if data else []
        if self.framing in (Framing.CHUNKED, Framing.BAD_CHUNK):
            return [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        return pieces


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Practice"
