"""An HTTP client that shows every byte, on a blocking socket, and that can leave at any moment.

`RawClient` is one connection: `send` what you like, then read the answer as a whole (`read_answer`) or piece by piece
(`read_head`, `read_piece`, `read_event`). One piece is one chunk of the transfer coding, which is one write of the
server. Every read is bounded in time, so that a hang is a failure and not a stuck run.
"""

import json
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

__all__ = ["Answer", "RawClient", "event_datas"]

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def event_datas(body: bytes) -> list[str]:
    """The data of each event of an event stream (WHATWG HTML, 9.2.6); comments and other fields are left out."""
    found: list[str] = []
    lines: list[str] = []
    for line in [*re.split(r"\r\n|\n|\r", body.decode().removeprefix("\ufeff")), ""]:
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            found.append("\n".join(lines))
            lines = []
    return found


@dataclass(slots=True)
class Answer:
    """A head and the body as far as it was read. `pieces` are its writes."""

    status: int
    headers: dict[str, str]
    raw_head: bytes
    pieces: list[bytes] = field(default_factory=list)
    is_complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def call_id(self) -> str:
        return self.headers["x-call-id"]

    @property
    def events(self) -> list[str]:
        """The data of each event."""
        return event_datas(self.body)

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The JSON of each event but `[DONE]`."""
        return [json.loads(data) for data in self.events if data != "[DONE]"]

    @property
    def text(self) -> str:
        """What the model said, of a stream or of a plain answer."""
        if "event-stream" not in self.headers.get("content-type", ""):
            return self.json["choices"][0]["message"]["content"] or ""
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", ())]
        return "".join(choice.get("delta", {}).get("content") or "" for choice in choices)

    @property
    def is_done(self) -> bool:
        """Whether a stream ended cleanly."""
        return self.events[-1:] == ["[DONE]"]

    @property
    def error(self) -> dict[str, Any]:
        """The error, of a JSON answer or of a stream's last event."""
        if "event-stream" in self.headers.get("content-type", ""):
            return json.loads(self.events[-1])["error"]
        return self.json["error"]


class RawClient:
    """See the module. `receive_buffer` in bytes makes a client that takes little at a time."""

    def __init__(self, port: int, *, timeout_s: float = 20.0, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        self.socket.connect(("127.0.0.1", port))
        self._buffer = b""
        self._is_chunked = False
        self._ends_with_connection = False
        self._left = 0
        self._events: list[bytes] = []
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send one request; `content-length` is added where there is a body."""
        lines = {"host": "relay.test", **(headers or {})}
        if body or method in ("POST", "PUT"):
            lines.setdefault("content-length", str(len(body)))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.send(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    def _more(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _exactly(self, count: int) -> bytes:
        if len(self._buffer) < count:
            parts, have = [self._buffer], len(self._buffer)
            while have < count:
                data = self.socket.recv(min(1 << 20, count - have))
                if not data:
                    raise ConnectionError("the server closed the connection")
                parts.append(data)
                have += len(data)
            self._buffer = b"".join(parts)
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found

    def read_head(self, *, is_head: bool = False) -> Answer:
        """Status and headers. `is_head`: the answer to a HEAD request, which has no body."""
        raw = self._until(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        pairs = [line.split(":", 1) for line in lines]
        headers = {name.lower(): value.strip() for name, value in pairs}
        assert len(headers) == len(pairs) or "set-cookie" in headers, f"a header stands twice: {lines}"
        status = int(first.split(" ")[1])
        self._is_chunked = headers.get("transfer-encoding", "") == "chunked"
        has_body = not is_head and status not in (204, 304)
        length = headers.get("content-length")
        self._ends_with_connection = has_body and not self._is_chunked and length is None
        self._left = int(length or "0") if has_body else 0
        return Answer(status, headers, raw)

    def read_piece(self) -> bytes:
        """The next write of the server; b"" at the end of the body. Raises ConnectionError for a cut."""
        if self._is_chunked:
            size = int(self._until(b"\r\n"), 16)
            data = self._exactly(size)
            self._until(b"\r\n")
            return data
        if self._ends_with_connection:
            data, self._buffer = self._buffer, b""
            return data or self.socket.recv(1 << 20)
        data, self._left = self._exactly(self._left), 0
        return data

    def read_event(self) -> bytes:
        """The next raw event or comment of an event stream."""
        while not (match := _END.search(self._rest)):
            piece = self.read_piece()
            if not piece:
                raise ConnectionError("the stream ended")
            self._rest += piece
        event, self._rest = self._rest[: match.end()], self._rest[match.end() :]
        return event

    def read_rest(self, answer: Answer) -> Answer:
        """Read the answer to its end."""
        if self._rest:
            answer.pieces.append(self._rest)
            self._rest = b""
        while piece := self.read_piece():
            answer.pieces.append(piece)
        answer.is_complete = True
        return answer

    def read_answer(self, *, is_head: bool = False) -> Answer:
        """One whole answer; the connection can be used again."""
        return self.read_rest(self.read_head(is_head=is_head))

    def close(self) -> None:
        """Leave in good order."""
        self.socket.close()

    def reset(self) -> None:
        """Break the connection: the server sees a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
