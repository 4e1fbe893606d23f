"""A head that never ends, by size or by time; and that nothing else is closed for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvicorn

from gateway.http_protocol import HEAD_BYTES, RelayHttp

REQUEST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"
LIMIT_S = 5


class Hasty(RelayHttp):
    head_s = 0.2


async def application(scope, receive, send) -> None:
    """Reads the body, then answers after a moment that is longer than a head may take."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await asyncio.sleep(0.4)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": body[-2:]})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    config = uvicorn.Config(application, port=0, http=Hasty, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


async def answer_to(port: int, *pieces: bytes, gap_s: float = 0.0) -> bytes:
    """What the server says to these pieces until it closes, or to the end of its first answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    try:
        async with asyncio.timeout(LIMIT_S):
            for number, piece in enumerate(pieces):
                if number:
                    await asyncio.sleep(gap_s)
                writer.write(piece)
            while not said.endswith(b"\r\n\r\n{}") and (data := await reader.read(65_536)):
                said += data
    except ConnectionError:
        pass
    finally:
        writer.close()
    return said


async def test_it_works(port: int) -> None:
    assert (await answer_to(port, REQUEST + b"{}")).startswith(b"HTTP/1.1 200 ")


async def test_a_head_that_is_too_large_is_told_so(port: int) -> None:
    head = REQUEST[:-2] + b"x: y\r\n" * (HEAD_BYTES // 6 + 1)
    said = await answer_to(port, head)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b'"headers_too_large"' in said


async def test_a_body_in_the_same_piece_does_not_count(port: int) -> None:
    body = b" " * (2 * HEAD_BYTES) + b"{}"
    head = REQUEST.replace(b"length: 2", b"length: %d" % len(body))
    assert (await answer_to(port, head + body)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begun", [b"", b"P", REQUEST[:20]])
async def test_a_head_that_does_not_come_is_not_waited_for(port: int, begun: bytes) -> None:
    assert await answer_to(port, begun) == b""


async def test_a_head_that_trickles_is_not_waited_for(port: int) -> None:
    assert await answer_to(port, *(REQUEST[at : at + 1] for at in range(20)), gap_s=0.05) == b""


async def test_a_body_may_take_longer(port: int) -> None:
    assert (await answer_to(port, REQUEST, b"{", b"}", gap_s=0.3)).startswith(b"HTTP/1.1 200 ")


async def test_a_second_request_may_come_later(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(LIMIT_S):
        for _ in range(2):
            writer.write(REQUEST + b"{}")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(2) == b"{}"
            await asyncio.sleep(0.3)
        writer.write(REQUEST[:10])
        assert await reader.read() == b""
    writer.close()
