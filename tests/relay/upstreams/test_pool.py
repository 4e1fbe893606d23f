"""Reuse, the one retry, idle life, warming, leaving nothing behind."""

import asyncio
import time

import pytest

from relay.upstreams import connection as connection_module
from relay.upstreams import pool as pool_module
from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool
from tests.fakes.http_server import HttpServer, answer, answering

OK = answer(b"ok")
LIMITS = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)


async def leave(peer):
    await peer.request()


def endpoint_of(server: HttpServer) -> Endpoint:
    return Endpoint.parse(server.url, allow_private=True)


async def test_it_works(ask, pool, read_all):
    async with HttpServer(answering(OK, OK)) as server:
        for is_reused in (False, True):
            exchange = await ask(server, body=b"hello")
            assert await read_all(exchange) == b"ok"
            assert exchange.reused is is_reused
        assert server.connections == 1
        assert (pool.open_connections, pool.idle_connections) == (1, 1)
        assert [request.body for request in server.requests] == [b"hello", b"hello"]


async def test_the_connection_is_free_with_the_last_byte_whether_it_was_read_or_not(ask, pool, eventually):
    async with HttpServer(answering(OK, OK)) as server:
        first = await ask(server)
        await eventually(lambda: pool.idle_connections == 1)
        second = await ask(server)
        assert second.reused
        assert await first.read() == b"ok"
        assert await second.read() == b"ok"


async def test_calls_at_once_have_connections_of_their_own(ask, pool, read_all):
    async with HttpServer(answering(OK, OK)) as server:
        exchanges = await asyncio.gather(*(ask(server) for _ in range(40)))
        assert server.connections == 40
        assert [await read_all(exchange) for exchange in exchanges] == [b"ok"] * 40
        assert pool.idle_connections == 40
        await asyncio.gather(*(ask(server) for _ in range(40)))
        assert server.connections == 40


async def test_the_connection_used_last_is_used_next(ask, pool, read_all):
    async def named(peer):
        name = b"%d" % peer.number
        while True:
            await peer.request()
            await peer.send(answer(name))

    async with HttpServer(named) as server:
        await asyncio.gather(*(ask(server) for _ in range(3)))
        names = {await read_all(await ask(server)) for _ in range(6)}
        assert server.connections == 3
        assert len(names) == 1


async def test_endpoints_do_not_share_connections(pool):
    async with HttpServer(answering(OK)) as one, HttpServer(answering(OK)) as other:
        for server in (one, other):
            endpoint = endpoint_of(server)
            exchange = await pool.open(endpoint, build_head("POST", endpoint, "/", []), timeouts=LIMITS)
            assert not exchange.reused
            await exchange.read()


async def test_paths_of_one_host_share_connections(pool):
    async with HttpServer(answering(OK, OK)) as server:
        for path in ("/v1", "/v2"):
            endpoint = Endpoint.parse(server.url + path, allow_private=True)
            exchange = await pool.open(endpoint, build_head("POST", endpoint, "/x", []), timeouts=LIMITS)
            await exchange.read()
        assert [request.line for request in server.requests] == ["POST /v1/x HTTP/1.1", "POST /v2/x HTTP/1.1"]
        assert server.connections == 1


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("size", [1, 1_000_000])
async def test_a_connection_closed_while_idle_is_replaced_once(how, size, ask, read_all):
    """The close crosses our request: the second request on the connection is never answered."""

    async def script(peer):
        await peer.request()
        await peer.send(OK)
        await peer.receive(1)
        getattr(peer, how)()

    async with HttpServer(script, answering(OK)) as server:
        await read_all(await ask(server))
        exchange = await ask(server, body=b"x" * size)
        assert await read_all(exchange) == b"ok"
        assert not exchange.reused
        assert server.connections == 2
        assert server.requests[-1].body == b"x" * size


async def test_the_replacement_is_fresh_and_gets_no_second_chance(ask, pool, read_all, eventually):
    async def stale(peer):
        await peer.request()
        await peer.send(OK)
        await peer.receive(1)

    async with HttpServer(stale, stale, leave) as server:
        exchanges = await asyncio.gather(ask(server), ask(server))
        for exchange in exchanges:
            await read_all(exchange)
        assert pool.idle_connections == 2
        with pytest.raises(UpstreamFault) as caught:
            await ask(server)
        assert caught.value.kind is FaultKind.CUT
        assert server.connections == 3  # one of the two idle ones, then a new one, and no more


async def test_a_fresh_connection_that_is_closed_is_not_tried_again(ask):
    async with HttpServer(leave) as server:
        with pytest.raises(UpstreamFault, match="before the first byte"):
            await ask(server)
        assert server.connections == 1


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_nothing_is_sent_again_after_a_byte_of_an_answer(part, ask, read_all):
    async def script(peer):
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await peer.send(part)

    async with HttpServer(script, answering(OK)) as server:
        await read_all(await ask(server))
        with pytest.raises(UpstreamFault, match="cut"):
            await ask(server)
        assert server.connections == 1


async def test_nothing_is_sent_again_once_the_upstream_may_have_worked_on_it(ask, read_all, monkeypatch):
    monkeypatch.setattr(connection_module, "STALE_S", 0.05)

    async def script(peer):
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await peer.pause(0.1)

    async with HttpServer(script, answering(OK)) as server:
        await read_all(await ask(server))
        with pytest.raises(UpstreamFault, match="cut"):
            await ask(server)
        assert server.connections == 1


async def test_a_timeout_on_a_reused_connection_is_not_tried_again(ask, read_all):
    async def script(peer):
        await peer.request()
        await peer.send(OK)
        await peer.gone()

    async with HttpServer(script, answering(OK)) as server:
        await read_all(await ask(server))
        with pytest.raises(UpstreamFault, match="headers_timeout"):
            await ask(server, timeouts=Timeouts(first_token_s=0.05))
        assert server.connections == 1


async def test_a_connection_closed_while_idle_is_forgotten_when_we_hear_of_it(
    ask, pool, read_all, eventually
):
    async def script(peer):
        await peer.request()
        await peer.send(OK)

    async with HttpServer(script) as server:
        for _ in range(2):
            await read_all(await ask(server))
            await eventually(lambda: pool.open_connections == 0)
            assert pool.idle_connections == 0


async def test_what_lies_idle_too_long_is_closed(read_all, eventually, monkeypatch):
    monkeypatch.setattr(pool_module, "SWEEP_S", 0.02)
    pool = Pool(idle_s=0.3)
    async with HttpServer(answering(OK)) as server:
        assert await pool.warm(endpoint_of(server), 3) == 3
        await eventually(lambda: server.open_connections == 0)
        assert (pool.open_connections, pool.idle_connections) == (0, 0)
    await pool.close()


async def test_what_lay_idle_too_long_is_not_used_even_before_it_is_swept():
    pool = Pool(idle_s=0.02)
    async with HttpServer(answering(OK)) as server:
        endpoint = endpoint_of(server)
        await pool.warm(endpoint, 2)
        await asyncio.sleep(0.05)
        exchange = await pool.open(endpoint, build_head("GET", endpoint, "/", []), timeouts=LIMITS)
        assert not exchange.reused
        assert server.connections == 3
    await pool.close()


@pytest.mark.parametrize(
    ("keep_alive", "is_reused"),
    [
        (b"timeout=1", False),
        (b"max=100, Timeout = 1", False),
        (b"timeout=60", True),
        (b"timeout=", True),
        (b"timeout=soon", True),
        (b"timeout=" + b"9" * 400, True),
        (b"max=5", True),
    ],
)
async def test_the_peers_keep_alive_is_taken_to_heart(keep_alive, is_reused, ask, read_all, monkeypatch):
    """A peer that keeps connections for a second gets no request after half of one."""
    raw = answer(b"ok", headers=b"Keep-Alive: " + keep_alive + b"\r\n")
    now = 0.0
    monkeypatch.setattr(pool_module, "perf_counter", lambda: time.perf_counter() + now)
    async with HttpServer(answering(raw, raw)) as server:
        await read_all(await ask(server))
        now = 0.6
        assert (await ask(server)).reused is is_reused


async def test_only_so_many_lie_idle(read_all, eventually):
    pool = Pool(max_idle=3)
    async with HttpServer(answering(OK)) as server:
        endpoint = endpoint_of(server)
        head = build_head("POST", endpoint, "/", [])
        exchanges = await asyncio.gather(*(pool.open(endpoint, head, timeouts=LIMITS) for _ in range(8)))
        for exchange in exchanges:
            await read_all(exchange)
        await eventually(lambda: pool.open_connections == 3)
        assert pool.idle_connections == 3
    await pool.close()


async def test_warm_connections_are_used_by_the_next_calls(ask, pool):
    async with HttpServer(answering(OK)) as server:
        assert await pool.warm(endpoint_of(server), 2) == 2
        assert await pool.warm(endpoint_of(server), 2) == 2
        assert server.connections == 2
        assert (await ask(server)).reused


async def test_a_warm_connection_closed_by_the_peer_is_replaced(ask, pool):
    async def impatient(peer):
        await peer.receive(1)
        peer.reset()

    async with HttpServer(impatient, answering(OK)) as server:
        await pool.warm(endpoint_of(server), 1)
        assert await (await ask(server)).read() == b"ok"


async def test_warming_what_cannot_be_reached_says_so(pool):
    endpoint = Endpoint.parse("http://127.0.0.1:1", allow_private=True)
    with pytest.raises(UpstreamFault, match="connect_failed"):
        await pool.warm(endpoint, 2)
    assert pool.open_connections == 0


async def hold(peer):
    await peer.request()
    await peer.gone()


async def slow_body(peer):
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    await peer.gone()


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.02])
@pytest.mark.parametrize("size", [0, 20_000_000])
async def test_cancelling_an_open_leaves_nothing(after_s, size, ask, pool, eventually):
    async with HttpServer(hold) as server:
        task = asyncio.create_task(ask(server, body=b"x" * size))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: pool.open_connections == 0 and server.open_connections == 0)


async def test_cancelling_at_any_moment_leaves_nothing(pool, eventually):
    """A call is cancelled after each number of turns of the event loop that it lives through."""

    async def call(endpoint: Endpoint, head: bytes) -> None:
        exchange = await pool.open(endpoint, head, [b"body"], timeouts=LIMITS)
        try:
            while await exchange.read():
                pass
        finally:
            exchange.close()

    async with HttpServer(answering(*[OK] * 500)) as server:
        endpoint = endpoint_of(server)
        head = build_head("POST", endpoint, "/", [])
        await call(endpoint, head)  # the look-up takes a thread, which no number of turns waits for
        results = []
        while None not in results:
            task = asyncio.create_task(call(endpoint, head))
            for _ in range(len(results)):
                await asyncio.sleep(0)
            task.cancel()
            results += await asyncio.gather(task, return_exceptions=True)
            await eventually(lambda: pool.open_connections == pool.idle_connections)
        assert all(isinstance(result, asyncio.CancelledError) for result in results[:-1])
        assert len(results) > 3
        assert pool.idle_connections <= 1
        await eventually(lambda: server.open_connections == pool.open_connections)


@pytest.mark.parametrize("script", [hold, slow_body])
async def test_closing_the_pool_ends_running_calls_as_closed(script, eventually):
    pool = Pool()
    async with HttpServer(script) as server:
        endpoint = endpoint_of(server)

        async def call() -> bytes:
            exchange = await pool.open(endpoint, build_head("POST", endpoint, "/", []), timeouts=LIMITS)
            return await exchange.read()

        task = asyncio.create_task(call())
        await eventually(lambda: len(server.requests) == 1)
        await asyncio.sleep(0.01)
        await pool.close()
        await pool.close()
        assert pool.open_connections == 0
        with pytest.raises(UpstreamFault) as caught:
            await task
        assert caught.value.kind is FaultKind.CLOSED
        await eventually(lambda: server.open_connections == 0)
        with pytest.raises(UpstreamFault, match="closed"):
            await call()
        with pytest.raises(UpstreamFault, match="closed"):
            await pool.warm(endpoint, 1)


async def test_a_connection_that_comes_after_the_pool_was_closed_is_closed():
    pool = Pool()
    async with HttpServer(hold) as server:
        endpoint = endpoint_of(server)
        task = asyncio.create_task(
            pool.open(endpoint, build_head("POST", endpoint, "/", []), timeouts=LIMITS)
        )
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(UpstreamFault):
            await task
    assert pool.open_connections == 0


async def test_a_unix_socket_is_called(pool, read_all, tmp_path):
    path = tmp_path / "console.sock"
    async with HttpServer(answering(OK, OK), unix_path=path) as server:
        endpoint = Endpoint.parse("http://console", unix_path=str(path))
        for is_reused in (False, True):
            head = build_head("GET", endpoint, "/login", [(b"host", b"relay.example")])
            exchange = await pool.open(endpoint, head, timeouts=LIMITS)
            assert await read_all(exchange) == b"ok"
            assert exchange.reused is is_reused
        assert server.requests[0].headers["host"] == "relay.example"
    with pytest.raises(UpstreamFault, match="connect_failed"):
        await pool.open(Endpoint.parse("http://x", unix_path=str(tmp_path / "none")), head, timeouts=LIMITS)


async def test_thousand_calls_one_after_the_other_and_sixty_at_once_leave_only_idle_connections(
    ask, pool, read_all
):
    async with HttpServer(answering(*[OK] * 1000)) as server:

        async def caller() -> None:
            for _ in range(15):
                assert await read_all(await ask(server)) == b"ok"

        await asyncio.gather(*(caller() for _ in range(60)))
        assert len(server.requests) == 900
        assert pool.open_connections == pool.idle_connections == server.connections
        assert server.connections <= 60


async def test_a_connection_always_in_use_is_replaced_in_the_end(read_all):
    pool = Pool(max_age_s=0.3)
    async with HttpServer(answering(*[OK] * 100)) as server:
        head = build_head("POST", endpoint_of(server), "/x", [])
        async with asyncio.timeout(10):
            while server.connections < 2:
                exchange = await pool.open(endpoint_of(server), head, [b"x"], timeouts=LIMITS)
                assert await read_all(exchange) == b"ok"
                await asyncio.sleep(0.02)
        assert server.connections == 2
        await pool.close()
