"""The upstreams of a case: each answers its nth request with its nth reply, over real sockets (README, section 3)."""

import asyncio
import base64
import json
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.http_server import HttpServer, Peer, Request, chunk, in_thread

__all__ = ["Arrival", "ScriptedUpstream", "running_upstream"]

PIECE_PAUSE_S = 0.005
# What a request beyond the script is answered with.
BEYOND = {"status": 599, "text": "this request is not in the script"}
_TYPES = {
    "body": "application/json",
    "sse": "text/event-stream",
    "chunks": "text/event-stream",
    "text": "text/plain",
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that reached an upstream. `at` orders those of a case."""

    upstream: int
    request: Request
    at: float


@dataclass(slots=True)
class ScriptedUpstream:
    """One running upstream. `closed_at` is when the relay was seen to have left the connection in use."""

    number: int
    server: HttpServer
    arrivals: list[Arrival] = field(default_factory=list)
    closed_at: float | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@contextmanager
def running_upstream(
    number: int, upstream: dict[str, Any], protocol: str, *, watch: bool
) -> Iterator[ScriptedUpstream]:
    """Run one upstream while the block lasts; `watch` for the relay to leave in the middle of a reply."""
    replies = list(upstream["replies"])
    named = protocol in ("anthropic", "openai-responses")

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            running.arrivals.append(Arrival(number, request, time.perf_counter()))
            place = len(running.arrivals) - 1
            reply = replies[place] if place < len(replies) else BEYOND
            gone = asyncio.create_task(peer.gone()) if watch else None
            try:
                if await _play(peer, reply, named=named):
                    return
            except ConnectionError:
                running.closed_at = running.closed_at or time.perf_counter()
                return
            finally:
                if gone is not None and gone.done():
                    running.closed_at = gone.result()
                elif gone is not None:
                    gone.cancel()

    with in_thread(script) as server:
        running = ScriptedUpstream(number, server)
        yield running


async def _play(peer: Peer, reply: dict[str, Any], *, named: bool) -> bool:
    """Send one reply; whether the connection was cut."""
    await asyncio.sleep(reply.get("wait_ms", 0) / 1000)
    kind = next(name for name in ("body", "text", "chunks", "sse") if name in reply)
    headers = {"content-type": _TYPES[kind], **reply.get("headers", {})}
    if reply.get("gzip"):
        headers["content-encoding"] = "gzip"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
    head = f"HTTP/1.1 {reply.get('status', 200)} Scripted\r\n{lines}"
    if kind in ("body", "text"):
        body = _compact(reply["body"]).encode() if kind == "body" else reply["text"].encode()
        if reply.get("gzip"):
            body = _squeeze(zlib.compressobj(wbits=31), body, last=True)
        await peer.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return False
    await peer.send(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
    pieces = (
        (_event(item, named=named) for item in reply["sse"])
        if kind == "sse"
        else map(_piece, reply["chunks"])
    )
    packer = zlib.compressobj(wbits=31) if reply.get("gzip") else None
    for piece in pieces:
        match piece:
            case float():
                await asyncio.sleep(piece)
            case None:
                peer.close()
                return True
            case _:
                await peer.send(chunk(_squeeze(packer, piece) if packer else piece))
                await asyncio.sleep(PIECE_PAUSE_S)
    if packer:
        await peer.send(chunk(packer.flush()))
    await peer.send(chunk(b""))
    return False


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _squeeze(packer: Any, data: bytes, *, last: bool = False) -> bytes:
    return packer.compress(data) + packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


def _piece(item: Any, prefix: str = "") -> bytes | float | None:
    """Bytes to send, seconds to wait, or None to cut."""
    if isinstance(item, str):
        return item.encode()
    match {name.removeprefix(prefix): value for name, value in item.items()}:
        case {"b64": text}:
            return base64.b64decode(text)
        case {"raw": text}:
            return str(text).encode()
        case {"delay_ms": ms}:
            return ms / 1000
        case {"repeat": text, "times": times}:
            return (text * times).encode()
        case {"cut": True}:
            return None
    raise ValueError(f"no piece of a reply: {item}")


def _event(item: Any, *, named: bool) -> bytes | float | None:
    if isinstance(item, dict) and item and all(name.startswith("$") for name in item):
        return _piece(item, "$")
    if isinstance(item, str):
        return f"data: {item}\n\n".encode()
    name = f"event: {item['type']}\n" if named else ""
    return f"{name}data: {_compact(item)}\n\n".encode()
