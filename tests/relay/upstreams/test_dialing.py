"""Look-up and TCP of new connections, over real sockets."""

import asyncio
import contextlib
import socket
import time
import types
from collections.abc import Iterator

import psutil
import pytest

from relay.upstreams import dialing
from relay.upstreams.address import REMEMBER_S, Address, Resolver
from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool
from tests.fakes.http_server import HttpServer, Peer, answer, answering

OK = answer(b"ok")
LIMITS = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)


async def call(pool: Pool, url: str, *, timeouts: Timeouts = LIMITS, **options: object) -> Exchange:
    endpoint = Endpoint.parse(url, **{"allow_private": True, **options})  # type: ignore[arg-type]
    return await pool.open(endpoint, build_head("POST", endpoint, "/x", []), timeouts=timeouts)


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose queue of connections is full: whoever connects to it waits."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


async def test_a_refused_connection_fails_at_once(pool):
    with pytest.raises(UpstreamFault) as caught:
        await call(pool, f"http://127.0.0.1:{closed_port()}")
    assert caught.value.kind is FaultKind.CONNECT_FAILED
    assert "127.0.0.1" in caught.value.detail


async def test_a_connection_that_does_not_come_is_given_up_in_time(pool):
    with deaf_port() as port:
        started = time.perf_counter()
        with pytest.raises(UpstreamFault) as caught:
            await call(pool, f"http://127.0.0.1:{port}", timeouts=Timeouts(connect_s=0.1))
        assert caught.value.kind is FaultKind.CONNECT_TIMEOUT
        assert 0.09 < time.perf_counter() - started < 1


async def test_the_total_limit_bounds_the_connection_too(pool):
    with deaf_port() as port, pytest.raises(UpstreamFault, match="connect_timeout"):
        await call(pool, f"http://127.0.0.1:{port}", timeouts=Timeouts(connect_s=60, total_s=0.05))


async def test_without_leave_a_private_address_is_refused_before_anything_is_sent(pool):
    async with HttpServer(answering(OK)) as server:
        for host in ("127.0.0.1", "localhost", "[::1]", "0x7f.1", "[::ffff:127.0.0.1]"):
            with pytest.raises(UpstreamFault) as caught:
                await call(pool, f"http://{host}:{server.port}", allow_private=False)
            assert caught.value.kind is FaultKind.ADDRESS_REFUSED
        assert server.connections == 0


async def test_a_name_that_does_not_exist_is_said_so(pool):
    def nobody(host: str, port: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    lonely = Pool(resolver=Resolver(nobody))
    with pytest.raises(UpstreamFault, match=r"resolve_failed: nowhere\.example: .*not known"):
        await call(lonely, "http://nowhere.example")
    await lonely.close()


def pool_that_finds(*ports: int) -> Pool:
    """A pool for which every name has one address per port."""
    return Pool(
        resolver=Resolver(
            lambda host, port: [Address(socket.AF_INET, "127.0.0.1", ("127.0.0.1", p)) for p in ports]
        )
    )


async def test_a_name_is_called_at_the_address_it_was_checked_for():
    async with HttpServer(answering(OK)) as server:
        pool = pool_that_finds(server.port)
        exchange = await call(pool, "http://upstream.example:1/v1")
        assert await exchange.read() == b"ok"
        assert server.requests[0].headers["host"] == "upstream.example:1"
        await pool.close()


async def test_a_dead_address_costs_a_moment_and_not_the_limit(monkeypatch):
    monkeypatch.setattr(dialing, "STAGGER_S", 0.05)
    async with HttpServer(answering(OK)) as server:
        with deaf_port() as port:
            pool = pool_that_finds(port, server.port)
            started = time.perf_counter()
            assert await (await call(pool, "http://upstream.example")).read() == b"ok"
            assert 0.04 < time.perf_counter() - started < 1
            await pool.close()


async def test_a_refusing_address_is_passed_over_without_waiting(monkeypatch):
    monkeypatch.setattr(dialing, "STAGGER_S", 30)
    async with HttpServer(answering(OK)) as server:
        pool = pool_that_finds(closed_port(), closed_port(), server.port)
        assert await (await call(pool, "http://upstream.example")).read() == b"ok"
        await pool.close()


async def test_addresses_that_all_refuse_are_a_failed_connection():
    pool = pool_that_finds(closed_port(), closed_port())
    with pytest.raises(UpstreamFault, match="connect_failed"):
        await call(pool, "http://upstream.example")
    await pool.close()


async def test_a_name_that_moved_is_looked_up_again_after_the_first_failure():
    ports = [closed_port()]
    pool = Pool(
        resolver=Resolver(lambda host, port: [Address(socket.AF_INET, "x", ("127.0.0.1", ports[-1]))])
    )
    async with HttpServer(answering(OK)) as server:
        with pytest.raises(UpstreamFault, match="connect_failed"):
            await call(pool, "http://upstream.example")
        ports.append(server.port)
        assert await (await call(pool, "http://upstream.example")).read() == b"ok"
    await pool.close()


async def test_a_name_that_moves_is_followed_by_new_connections_and_running_ones_stay(monkeypatch):
    """Within `REMEMBER_S` of the move, though the old address still answers."""
    released = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"o")
        await released.wait()
        await peer.send(b"k")
        await peer.gone()

    async with HttpServer(slow) as old, HttpServer(answering(OK)) as new:
        ports = [old.port]
        resolver = Resolver(lambda host, port: [Address(socket.AF_INET, "x", ("127.0.0.1", ports[-1]))])
        pool = Pool(resolver=resolver)
        running = await call(pool, "http://upstream.example")
        ports.append(new.port)
        unaware = await call(pool, "http://upstream.example")
        # As if so much time had passed for the resolver alone.
        now = time.perf_counter()
        later = types.SimpleNamespace(perf_counter=lambda: now + REMEMBER_S + 0.1)
        monkeypatch.setattr("relay.upstreams.address.time", later)
        aware = await call(pool, "http://upstream.example")
        released.set()
        for exchange in (aware, unaware, running):
            body = b""
            while data := await exchange.read():
                body += data
            assert body == b"ok"
        assert (old.connections, new.connections) == (2, 1)
        await pool.close()


async def test_a_race_that_is_given_up_leaves_no_socket(monkeypatch, eventually):
    monkeypatch.setattr(dialing, "STAGGER_S", 0.01)
    with deaf_port() as one, deaf_port() as other:
        pool = pool_that_finds(one, other)
        with contextlib.suppress(UpstreamFault):
            await call(pool, "http://upstream.example", timeouts=Timeouts(connect_s=0.01))  # threads, pipes
        before = psutil.Process().num_fds()
        with pytest.raises(UpstreamFault, match="connect_timeout"):
            await call(pool, "http://upstream.example", timeouts=Timeouts(connect_s=0.1))
        task = asyncio.create_task(call(pool, "http://upstream.example"))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await eventually(lambda: psutil.Process().num_fds() == before)
        await pool.close()


async def test_a_late_winner_is_closed(monkeypatch, eventually):
    """Both addresses connect in the same turn: one is used, the other one is not left open."""
    monkeypatch.setattr(dialing, "STAGGER_S", 0)
    async with HttpServer(answering(OK)) as server:
        for _ in range(5):
            pool = pool_that_finds(server.port, server.port)
            assert await (await call(pool, "http://upstream.example")).read() == b"ok"
            await eventually(lambda: server.open_connections <= 1)
            await pool.close()


def test_families_take_turns_beginning_with_the_preferred():
    four = [Address(socket.AF_INET, str(n), (str(n), 1)) for n in range(2)]
    six = [Address(socket.AF_INET6, str(n), (str(n), 1)) for n in range(4)]
    assert dialing._interleaved(six + four) == [six[0], four[0], six[1], four[1], six[2], six[3]]
    assert dialing._interleaved(four + six)[:4] == [four[0], six[0], four[1], six[1]]
