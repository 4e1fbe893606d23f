"""Every test of this folder that has an event loop runs on uvloop and on asyncio's own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Body, Buffer, Exchange, Timeouts
from relay.upstreams.head import HeaderPairs, build_head
from relay.upstreams.pool import Pool
from tests.fakes.http_server import HttpServer

Ask = Callable[..., Awaitable[Exchange]]

# Long enough for a machine under load, short enough that a hanging test is a failing one.
SHORT = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool()
    yield pool
    await pool.close()
    assert pool.open_connections == 0


@pytest.fixture
def ask(pool: Pool) -> Ask:
    """Send one request to a scripted server and return the exchange: `await ask(server, body=b"x")`."""

    async def ask(
        server: HttpServer,
        *,
        method: str = "POST",
        path: str = "/x",
        headers: HeaderPairs = (),
        body: Buffer = b"",
        segments: Body = (),
        timeouts: Timeouts = SHORT,
        decode: bool = True,
        max_body_bytes: int | None = None,
    ) -> Exchange:
        endpoint = Endpoint.parse(server.url, allow_private=True)
        head = build_head(method, endpoint, path, headers)
        whole = segments or ([body] if body else ())
        return await pool.open(
            endpoint, head, whole, timeouts=timeouts, decode=decode, max_body_bytes=max_body_bytes
        )

    return ask


@pytest.fixture
def read_all() -> Callable[[Exchange], Awaitable[bytes]]:
    async def read_all(exchange: Exchange) -> bytes:
        body = b""
        while data := await exchange.read():
            body += data
        return body

    return read_all


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for something that other turns of the event loop bring about."""

    async def eventually(is_so: Callable[[], bool], *, within_s: float = 2.0) -> None:
        async with asyncio.timeout(within_s):
            while not is_so():  # noqa: ASYNC110  # what is waited for has no event to set
                await asyncio.sleep(0.001)

    return eventually
