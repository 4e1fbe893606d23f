import asyncio
import contextlib
import socket

import pytest

from gateway.start.probe import Answer, ask, is_page, is_ready, parse_head


@contextlib.asynccontextmanager
async def _server(answer, place=None):
    """Answers every request with the same bytes, on a port or a unix socket; what it was asked is kept."""
    asked = []

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    if place is None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
    else:
        server = await asyncio.start_unix_server(serve, str(place))
        address = place
    async with server:
        yield address, asked


async def test_it_works():
    async with _server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as (address, asked):
        assert await is_ready(address, "relay.example.com")
        assert asked == [b"GET /readyz HTTP/1.1\r\nHost: relay.example.com\r\nConnection: close\r\n\r\n"]


async def test_a_unix_socket_is_asked_the_same_way(place):
    async with _server(b"HTTP/1.1 200 OK\r\n\r\n", place / "sock") as (address, asked):
        assert await is_ready(address, "console")
        assert len(asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere/\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200",
        b"",
    ],
)
async def test_anything_but_200_is_not_ready(answer):
    async with _server(answer) as (address, _):
        assert not await is_ready(address, "relay")


async def test_nobody_there_is_not_ready(place):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert await ask(unused.getsockname(), "/", "relay") is None
    assert await ask(place / "none", "/", "relay") is None


@pytest.mark.parametrize(
    ("answer", "is_served"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 301 Moved\r\nLocation: https://relay.example.com/x\r\n\r\n", True),
        (b"HTTP/1.1 302 Found\r\nLocation: /accounts/login/?next=/\r\n\r\n", False),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", False),
    ],
)
async def test_a_page_may_ask_for_tls(answer, is_served):
    async with _server(answer) as (address, _):
        assert await is_page(address, "/accounts/login/", "relay") is is_served


def test_a_head_is_read():
    assert parse_head(b"HTTP/1.0 204 No Content\r\nA: b\r\n\r\n") == Answer(204)
    assert parse_head(b"HTTP/1.1 abc\r\n\r\n") is None
    assert parse_head(b"") is None
