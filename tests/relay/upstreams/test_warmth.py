"""Connections that lie ready: opened before a call comes, and kept, and let go when nobody wants them."""

import asyncio
import contextlib
from time import perf_counter

import pytest

from relay.upstreams import warmth
from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Timeouts
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool
from relay.upstreams.warmth import Warmth
from tests.fakes.http_server import HttpServer, Peer, answer, answering

OK = answer(b"ok")
BYE = answer(b"ok", headers=b"connection: close\r\n")
LIMITS = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)
TICK_S = 0.02


def to(server: HttpServer) -> Endpoint:
    return Endpoint.parse(server.url, allow_private=True)


@contextlib.asynccontextmanager
async def keeping(pool: Pool, wanted: list[Endpoint], **options: int):
    kept = Warmth(pool, lambda: wanted, tick_s=TICK_S, **options)
    kept.start()
    yield
    await kept.close()


async def test_a_connection_lies_ready_before_the_first_call(pool, eventually):
    async with HttpServer(answering(OK)) as server, keeping(pool, [to(server)]):
        await eventually(lambda: pool.idle_for(to(server)) == 1)
        assert not server.requests
        exchange = await pool.open(to(server), build_head("POST", to(server), "/x", []), timeouts=LIMITS)
        assert exchange.reused
        assert await exchange.read() == b"ok"


async def test_the_next_one_lies_ready_while_a_call_is_running(pool, eventually):
    async def hold(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await peer.gone()

    async with HttpServer(hold) as server, keeping(pool, [to(server)]):
        for number in range(1, 4):
            await eventually(lambda: pool.idle_for(to(server)) == 1)
            exchange = await pool.open(to(server), build_head("POST", to(server), "/x", []), timeouts=LIMITS)
            assert exchange.reused
            await eventually(lambda number=number: pool.open_connections == number + 1)
        await pool.close()


async def test_what_will_soon_have_lain_too_long_is_replaced_before_it_goes(eventually, monkeypatch):
    monkeypatch.setattr(warmth, "AHEAD_S", 0.4)
    pool = Pool(idle_s=0.8)
    async with HttpServer(answering(OK)) as server, keeping(pool, [to(server)]):
        await eventually(lambda: pool.idle_for(to(server)) == 1)
        until = perf_counter() + 1.5
        while perf_counter() < until:
            assert pool.idle_for(to(server)) >= 1
            await asyncio.sleep(0.01)
        assert server.connections >= 3
    await pool.close()


async def test_what_is_wanted_no_more_is_not_opened_again(pool, eventually):
    wanted: list[Endpoint] = []
    async with HttpServer(answering(BYE)) as one, HttpServer(answering(OK)) as other:
        wanted.append(to(one))
        async with keeping(pool, wanted):
            await eventually(lambda: pool.idle_for(to(one)) == 1)
            wanted[:] = [to(other)]
            await eventually(lambda: pool.idle_for(to(other)) == 1)
            exchange = await pool.open(to(one), build_head("POST", to(one), "/x", []), timeouts=LIMITS)
            assert exchange.reused
            assert await exchange.read() == b"ok"
            await eventually(lambda: one.open_connections == 0)
            await asyncio.sleep(5 * TICK_S)
        assert (one.connections, other.connections) == (1, 1)


async def test_two_accounts_at_one_place_share_what_lies_ready(pool, eventually):
    async with HttpServer(answering(OK)) as server:
        both = [Endpoint.parse(server.url + path, allow_private=True) for path in ("/v1", "/v2")]
        async with keeping(pool, both, count=2):
            await eventually(lambda: pool.idle_for(both[0]) == 2)
            await asyncio.sleep(5 * TICK_S)
            assert server.connections == 2


async def leave(peer: Peer) -> None:
    peer.close()


async def reset(peer: Peer) -> None:
    peer.reset()


@pytest.mark.parametrize("script", [leave, reset])
async def test_a_server_that_closes_what_nobody_uses_is_left_alone_for_longer_and_longer(script, pool):
    async with HttpServer(script) as server, keeping(pool, [to(server)]):
        await asyncio.sleep(50 * TICK_S)
        # Pauses of 1, 2, 4, 8, 16, 32 ticks.
        assert 2 <= server.connections <= 8


async def test_a_place_that_cannot_be_reached_is_tried_again_and_found_when_it_is_there(pool, eventually):
    async with HttpServer(answering(OK)) as server:
        port = server.port
    endpoint = Endpoint.parse(f"http://127.0.0.1:{port}", allow_private=True)
    async with keeping(pool, [endpoint]):
        await asyncio.sleep(3 * TICK_S)
        assert pool.open_connections == 0
        async with HttpServer(answering(OK), port=port) as server:
            await eventually(lambda: pool.idle_for(endpoint) == 1)
