"""Hands requests that are not the relay's to the console, over its unix socket: HTTP and WebSocket.

The console sees the client's own address and scheme in `x-forwarded-*` headers that are written here, never passed on
from outside; it listens on the socket only, so nobody else can write them.
"""

import asyncio
import logging
from typing import Any
from urllib.parse import quote

import orjson
import websockets
from websockets.asyncio.client import unix_connect

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool

__all__ = ["HandOver"]

log = logging.getLogger(__name__)

BODY_BYTES = 32 * 1024 * 1024
TIMEOUTS = Timeouts(connect_s=2, first_token_s=120, idle_s=120, total_s=600)
_NOT_PASSED = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"content-length",
        b"upgrade",
        b"expect",
        b"te",
        b"proxy-connection",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        b"forwarded",
    }
)


class HandOver:
    """An ASGI application that asks the console and copies its answer."""

    def __init__(self, socket_path: str) -> None:
        self._socket = socket_path
        self._endpoint = Endpoint.parse("http://console", unix_path=socket_path)
        self._pool = Pool()

    async def close(self) -> None:
        await self._pool.close()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > BODY_BYTES:
                await _answer(send, 413, "The body is too large.")
                return
            if not message.get("more_body"):
                break
        try:
            head = build_head(scope["method"], self._endpoint, _target(scope), _forwarded(scope))
        except ValueError:
            await _answer(send, 400, "The request cannot be read.")
            return
        try:
            exchange = await self._pool.open(
                self._endpoint, head, [body] if body else [], timeouts=TIMEOUTS, decode=False
            )
        except UpstreamFault:
            await _answer(send, 503, "The console is not available at the moment.")
            return
        await self._copy(exchange, receive, send)

    async def _copy(self, exchange: Exchange, receive: Any, send: Any) -> None:
        gone = asyncio.create_task(_hear_hang_up(receive, exchange))
        try:
            headers = [
                pair
                for pair in exchange.headers
                if pair[0] not in (b"connection", b"transfer-encoding", b"keep-alive", b"date")
            ]
            await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
            while data := await exchange.read():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except UpstreamFault as fault:
            # The browser left, or the console broke off: the server closes what was begun.
            if fault.kind is not FaultKind.CLOSED:
                log.warning("the console broke off an answer: %s", fault.kind)
        finally:
            exchange.close()
            gone.cancel()
            await asyncio.wait([gone])

    async def _websocket(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in _forwarded(scope)
            if not name.startswith(b"sec-websocket-") and name != b"host"
        ]
        host = next(
            (value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "console"
        )
        try:
            async with unix_connect(
                self._socket,
                f"ws://{host}{_target(scope)}",
                additional_headers=headers,
                subprotocols=scope.get("subprotocols") or None,
                open_timeout=5,
                max_size=1024 * 1024,
            ) as console:
                await send({"type": "websocket.accept", "subprotocol": console.subprotocol})
                up = asyncio.create_task(_up(receive, console))
                try:
                    async for data in console:
                        await send(
                            {"type": "websocket.send", "text" if isinstance(data, str) else "bytes": data}
                        )
                finally:
                    up.cancel()
                    await asyncio.wait([up])
                await send({"type": "websocket.close", "code": console.close_code or 1000})
        except (OSError, TimeoutError, websockets.InvalidHandshake, websockets.ConnectionClosedError):
            await send({"type": "websocket.close", "code": 1011})


async def _up(receive: Any, console: Any) -> None:
    """What the browser says, to the console."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await console.close(message.get("code") or 1000)
            return
        text = message.get("text")
        await console.send(text if text is not None else message.get("bytes"))


async def _hear_hang_up(receive: Any, exchange: Exchange) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.close()


def _target(scope: dict[str, Any]) -> str:
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string") or b""
    path = raw.decode("latin-1")
    return f"{path}?{query.decode('latin-1')}" if query else path


def _forwarded(scope: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    headers = [pair for pair in scope["headers"] if pair[0] not in _NOT_PASSED]
    client = scope.get("client")
    if client:
        headers.append((b"x-forwarded-for", str(client[0]).encode()))
    headers.append((b"x-forwarded-proto", b"https" if scope.get("scheme") in ("https", "wss") else b"http"))
    return headers


async def _answer(send: Any, status: int, message: str) -> None:
    body = orjson.dumps({"error": {"message": message, "type": "server_error", "param": None, "code": None}})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
