"""TLS sessions over real sockets: offered to the place they came from, and to no other."""

import ssl
import time

import pytest

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Timeouts
from relay.upstreams.faults import UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool
from tests.fakes.http_server import HttpServer, Peer, answer

OK = answer(b"ok")
BYE = answer(b"ok", headers=b"connection: close\r\n")
LIMITS = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
async def tls_pool(authority):
    pool = Pool(ssl_context=authority.client)
    yield pool
    await pool.close()


class Guest:
    """A script that answers once, closes, and notes whether each connection was resumed."""

    def __init__(self) -> None:
        self.resumed: list[bool] = []

    async def __call__(self, peer: Peer) -> None:
        self.resumed.append(peer.is_resumed)
        await peer.request()
        await peer.send(BYE)


async def call(pool: Pool, endpoint: Endpoint) -> None:
    exchange = await pool.open(endpoint, build_head("POST", endpoint, "/x", []), timeouts=LIMITS)
    assert await exchange.read() == b"ok"
    assert not exchange.reused


def to(server: HttpServer, **options: object) -> Endpoint:
    return Endpoint.parse(f"https://localhost:{server.port}", **{"allow_private": True, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_a_new_connection_resumes_the_session_of_the_last(version, tls_pool, authority):
    tls = authority.server("localhost")
    tls.maximum_version = version
    guest = Guest()
    async with HttpServer(guest, tls=tls) as server:
        for _ in range(4):
            await call(tls_pool, to(server))
    assert guest.resumed == [False, True, True, True]


async def test_a_warm_connection_resumes_and_gives_its_session_too(tls_pool, authority):
    guest = Guest()
    async with HttpServer(guest, tls=authority.server("localhost")) as server:
        endpoint = to(server)
        for _ in range(2):
            await tls_pool.warm(endpoint, 1)
            exchange = await tls_pool.open(endpoint, build_head("GET", endpoint, "/", []), timeouts=LIMITS)
            assert exchange.reused
            assert await exchange.read() == b"ok"
    assert guest.resumed == [False, True]


async def test_another_server_at_the_same_address_is_asked_for_its_certificate(tls_pool, authority):
    """It cannot read the session, so the handshake is a full one, and its certificate is verified."""
    first, second = Guest(), Guest()
    async with HttpServer(first, tls=authority.server("localhost")) as server:
        await call(tls_pool, to(server))
        port = server.port
    async with HttpServer(second, tls=authority.server("localhost"), port=port) as server:
        await call(tls_pool, to(server))
    assert (first.resumed, second.resumed) == ([False], [False])
    async with HttpServer(Guest(), tls=authority.server("other.example"), port=port) as server:
        with pytest.raises(UpstreamFault, match="Hostname mismatch"):
            await call(tls_pool, to(server))


async def test_another_way_to_the_same_place_shares_no_session(tls_pool, authority):
    guest = Guest()
    async with HttpServer(guest, tls=authority.server("localhost")) as server:

        async def tunnel(peer: Peer) -> None:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
            await peer.tunnel_to(server.port)

        async with HttpServer(tunnel) as proxy:
            ways = [
                to(server),
                to(server, proxy=proxy.url),
                to(server, proxy=f"http://ann:pw@127.0.0.1:{proxy.port}"),
            ]
            for _ in range(2):
                for way in ways:
                    await call(tls_pool, way)
    assert guest.resumed == [False] * 3 + [True] * 3


async def test_a_server_that_chokes_on_a_session_is_offered_none_the_next_time(tls_pool, authority):
    guest = Guest()

    async def choke(peer: Peer) -> None:
        peer.reset()

    tls = authority.server("localhost")
    async with HttpServer(guest, tls=tls) as server:
        await call(tls_pool, to(server))
        port = server.port
    async with HttpServer(choke, port=port) as server:
        with pytest.raises(UpstreamFault, match="tls_failed"):
            await call(tls_pool, to(server))
    async with HttpServer(guest, tls=tls, port=port) as server:
        await call(tls_pool, to(server))
    assert guest.resumed == [False, False]


async def test_a_server_without_sessions_is_called_all_the_same(tls_pool, authority):
    tls = authority.server("localhost")
    tls.options |= ssl.OP_NO_TICKET
    tls.num_tickets = 0
    guest = Guest()
    async with HttpServer(guest, tls=tls) as server:
        for _ in range(3):
            await call(tls_pool, to(server))
    assert guest.resumed == [False] * 3


async def test_an_old_session_is_not_offered(tls_pool, authority, monkeypatch):
    guest = Guest()
    now = time.time()
    async with HttpServer(guest, tls=authority.server("localhost")) as server:
        await call(tls_pool, to(server))
        for later_s, is_resumed in ((1, True), (4000, False)):
            monkeypatch.setattr("relay.upstreams.tls.time.time", lambda later_s=later_s: now + later_s)
            await call(tls_pool, to(server))
            assert guest.resumed[-1] is is_resumed
