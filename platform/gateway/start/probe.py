"""Is it there yet? One small HTTP request over TCP or a unix socket, with a limit on its time.

No client library: it would cost more to import than all the questions of a start take.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Answer", "Place", "ask", "is_page", "is_ready"]

_ASK_S = 5.0
_MAX_HEAD_BYTES = 64 * 1024

Place = Path | tuple[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of a response, and where it leads if it is a redirect."""

    status: int
    location: str = ""


async def ask(place: Place, path: str, host: str) -> Answer | None:
    """The head of the answer to a GET, or None if nobody answers properly in time."""
    try:
        async with asyncio.timeout(_ASK_S):
            return await _ask(place, path, host)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        return None


async def is_ready(place: Place, host: str) -> bool:
    """Whether a process says that it is ready."""
    answer = await ask(place, "/readyz", host)
    return answer is not None and answer.status == 200


async def is_page(place: Place, path: str, host: str) -> bool:
    """Whether a page is served, or is told to be asked for over TLS, which a proxy in front will do."""
    answer = await ask(place, path, host)
    return answer is not None and (
        answer.status == 200 or (300 < answer.status < 400 and answer.location.startswith("https://"))
    )


def parse_head(head: bytes) -> Answer | None:
    r"""Pure. The answer in a response head, or None if it is no HTTP.

    >>> parse_head(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n")
    Answer(status=302, location='/x')
    """
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        return None
    headers = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
    return Answer(int(words[1]), headers.get("location", "").strip())


async def _ask(place: Place, path: str, host: str) -> Answer | None:
    if isinstance(place, Path):
        reader, writer = await asyncio.open_unix_connection(str(place), limit=_MAX_HEAD_BYTES)
    else:
        reader, writer = await asyncio.open_connection(*place, limit=_MAX_HEAD_BYTES)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return parse_head(await reader.readuntil(b"\r\n\r\n"))
    finally:
        writer.close()
