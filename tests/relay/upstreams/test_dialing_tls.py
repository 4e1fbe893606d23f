"""TLS of new connections, with certificates of our own."""

import asyncio
import ssl
import time

import psutil
import pytest

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool
from relay.upstreams.tls import client_tls
from tests.fakes.http_server import HttpServer, answer, answering

OK = answer(b"ok")
LIMITS = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)


async def call(pool: Pool, url: str, *, timeouts: Timeouts = LIMITS, **options: object) -> Exchange:
    endpoint = Endpoint.parse(url, **{"allow_private": True, **options})  # type: ignore[arg-type]
    return await pool.open(endpoint, build_head("POST", endpoint, "/x", []), timeouts=timeouts)


@pytest.fixture
async def tls_pool(authority):
    pool = Pool(ssl_context=authority.client)
    yield pool
    await pool.close()
    assert pool.open_connections == 0


def test_tls_for_upstreams_is_verified_and_made_once():
    context = client_tls()
    assert context is client_tls()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_system_without_certificates_trusts_mozillas(monkeypatch, tmp_path):
    none = ssl.get_default_verify_paths()._replace(cafile=None, capath=str(tmp_path))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: none)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda self, purpose: None)
    client_tls.cache_clear()
    try:
        assert client_tls().cert_store_stats()["x509_ca"] > 50
    finally:
        client_tls.cache_clear()


async def test_tls_works_and_the_connection_is_reused(tls_pool, authority):
    async with HttpServer(
        answering(OK, OK), tls=authority.server("localhost", alpn=("h2", "http/1.1"))
    ) as server:
        for is_reused in (False, True):
            exchange = await call(tls_pool, f"https://localhost:{server.port}")
            assert await exchange.read() == b"ok"
            assert exchange.reused is is_reused


async def test_an_address_can_be_certified_too(tls_pool, authority):
    async with HttpServer(answering(OK), tls=authority.server("127.0.0.1")) as server:
        assert await (await call(tls_pool, server.url)).read() == b"ok"


CERTIFICATES = {
    "self-signed": ({"is_self_signed": True}, ("localhost",), "self-signed certificate"),
    "wrong name": ({}, ("other.example",), "Hostname mismatch"),
    "wrong name in disguise": ({}, ("localhost.example", "xlocalhost"), "Hostname mismatch"),
    "expired": ({"age_days": 30}, ("localhost",), "certificate has expired"),
    "not yet valid": ({"age_days": -30}, ("localhost",), "not yet valid"),
}


@pytest.mark.parametrize("name", CERTIFICATES)
async def test_a_certificate_that_is_not_right_is_refused(name, tls_pool, authority, eventually):
    options, names, reason = CERTIFICATES[name]
    async with HttpServer(answering(OK), tls=authority.server(*names, **options)) as server:
        with pytest.raises(UpstreamFault) as caught:
            await call(tls_pool, f"https://localhost:{server.port}")
        assert caught.value.kind is FaultKind.TLS_FAILED
        assert reason in caught.value.detail
        assert server.requests == []
        await eventually(lambda: server.open_connections == 0)


async def test_an_authority_that_is_not_ours_is_refused(pool, authority):
    async with HttpServer(answering(OK), tls=authority.server("localhost")) as server:
        with pytest.raises(UpstreamFault, match="tls_failed"):
            await call(pool, f"https://localhost:{server.port}")


async def talk_plainly(peer):
    await peer.receive(1)
    await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    await peer.gone()


async def hang_up(peer):
    await peer.receive(1)


async def say_nothing(peer):
    await peer.gone()


@pytest.mark.parametrize("script", [talk_plainly, hang_up])
async def test_a_peer_that_speaks_no_tls_is_a_failed_handshake(script, tls_pool):
    async with HttpServer(script) as server:
        with pytest.raises(UpstreamFault) as caught:
            await call(tls_pool, f"https://localhost:{server.port}")
        assert caught.value.kind is FaultKind.TLS_FAILED


async def test_a_handshake_that_hangs_is_given_up_in_time(tls_pool, eventually):
    async with HttpServer(say_nothing) as server:
        with pytest.raises(UpstreamFault, match="connect_timeout"):
            await call(tls_pool, f"https://localhost:{server.port}", timeouts=Timeouts(connect_s=0.1))
        await eventually(lambda: server.open_connections == 0)


async def test_cancelling_a_handshake_at_any_moment_leaves_nothing(authority, eventually):

    async def deaf(peer):
        peer.stop_reading()
        await asyncio.sleep(30)

    async with HttpServer(answering(OK), deaf, tls=authority.server("localhost")) as server:
        pool = Pool(ssl_context=authority.client)
        endpoint = Endpoint.parse(f"https://localhost:{server.port}", allow_private=True)
        await (await call(pool, f"https://localhost:{server.port}")).read()
        results = []

        def has_nothing_open_but_idle() -> bool:
            sockets = psutil.Process().net_connections("tcp")
            ours = sum(bool(s.raddr) and s.raddr.port == server.port for s in sockets)
            return pool.open_connections == pool.idle_connections == ours

        while 2 not in results:
            task = asyncio.create_task(pool.warm(endpoint, 2))
            for _ in range(len(results)):
                await asyncio.sleep(0)
            task.cancel()
            results += await asyncio.gather(task, return_exceptions=True)
            await eventually(has_nothing_open_but_idle)
        assert isinstance(results[0], asyncio.CancelledError)
        await pool.close()


async def test_a_body_until_the_close_needs_a_proper_goodbye(tls_pool, authority):
    """RFC 9112, 9.8: a close that TLS did not announce may be somebody cutting the line."""

    async def proper(peer):
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nhello")

    async def abrupt(peer):
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await peer.pause(0.02)
        peer.reset()

    async with HttpServer(proper, abrupt, tls=authority.server("localhost")) as server:
        exchange = await call(tls_pool, f"https://localhost:{server.port}")
        assert [await exchange.read(), await exchange.read()] == [b"hello", b""]
        exchange = await call(tls_pool, f"https://localhost:{server.port}")
        assert await exchange.read() == b"hello"
        with pytest.raises(UpstreamFault, match="cut"):
            await exchange.read()


async def test_closing_early_reaches_the_peer_at_once_through_tls(tls_pool, authority, eventually):
    left_at = 0.0

    async def script(peer):
        nonlocal left_at
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
        left_at = await peer.gone()

    async with HttpServer(script, tls=authority.server("localhost")) as server:
        exchange = await call(tls_pool, f"https://localhost:{server.port}")
        closed_at = time.perf_counter()
        exchange.close()
        await eventually(lambda: server.open_connections == 0)
        assert left_at - closed_at < 0.2


async def test_large_bodies_go_through_tls_both_ways(tls_pool, authority):
    body = bytes(range(256)) * 20_000
    async with HttpServer(answering(answer(body)), tls=authority.server("localhost")) as server:
        endpoint = Endpoint.parse(f"https://localhost:{server.port}", allow_private=True)
        exchange = await tls_pool.open(
            endpoint, build_head("POST", endpoint, "/", []), [body], timeouts=LIMITS
        )
        await asyncio.sleep(0.05)
        received = b""
        while data := await exchange.read():
            received += data
        assert received == body
        assert server.requests[0].body == body


async def test_a_caller_that_does_not_read_holds_the_upstream_up_through_tls_too(tls_pool, authority):
    sent = 0

    async def script(peer):
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        while True:
            await peer.send(bytes(500_000))
            sent += 500_000

    async with HttpServer(script, tls=authority.server("localhost")) as server:
        exchange = await call(tls_pool, f"https://localhost:{server.port}")
        last = -1
        while last != sent:
            last = sent
            await asyncio.sleep(0.1)
        assert 0 < exchange.unread_bytes <= 1_000_000
        assert sent < 25_000_000
        exchange.close()
