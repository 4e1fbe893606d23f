"""HTTP CONNECT and SOCKS5, with proxies whose side of the conversation is written out byte by byte."""

import asyncio
import base64

import psutil
import pytest

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool
from tests.fakes.http_server import HttpServer, answer, answering

OK = answer(b"ok")
TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"
LIMITS = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)


async def call(
    pool: Pool, url: str, proxy: str, *, allow_private: bool = True, timeouts: Timeouts = LIMITS
) -> Exchange:
    endpoint = Endpoint.parse(url, allow_private=allow_private, proxy=proxy)
    return await pool.open(endpoint, build_head("POST", endpoint, "/x", []), timeouts=timeouts)


@pytest.fixture
async def tls_pool(authority):
    pool = Pool(ssl_context=authority.client)
    yield pool
    await pool.close()


def http_proxy(port: int, *, reply: bytes = TUNNEL, pieces: int = 1):
    """An HTTP proxy whose upstream is `port`, whatever it is asked for."""

    async def script(peer):
        await peer.request()
        size = len(reply) // pieces + 1
        await peer.send(*(reply[i : i + size] for i in range(0, len(reply), size)))
        await peer.tunnel_to(port)

    return script


def socks_proxy(port: int, *conversation: tuple[bytes, bytes]):
    """A SOCKS5 proxy: each pair is what it expects and what it answers."""

    async def script(peer):
        for expected, reply in conversation:
            assert await peer.receive(len(expected)) == expected
            await peer.send(*(bytes([byte]) for byte in reply))
        await peer.tunnel_to(port)

    return script


def name_request(host: bytes, port: int) -> bytes:
    return b"\x05\x01\x00\x03%c%b%b" % (len(host), host, port.to_bytes(2, "big"))


GRANTED = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x04\x38"


@pytest.mark.parametrize("pieces", [1, 7, 40])
async def test_an_http_proxy_opens_a_tunnel_that_is_reused(pieces, pool, read_all):
    async with (
        HttpServer(answering(OK, OK)) as server,
        HttpServer(http_proxy(server.port, pieces=pieces)) as proxy,
    ):
        for is_reused in (False, True):
            exchange = await call(pool, "http://upstream.example/v1", proxy.url)
            assert await read_all(exchange) == b"ok"
            assert exchange.reused is is_reused
        assert [request.raw_head for request in proxy.requests] == [
            b"CONNECT upstream.example:80 HTTP/1.1\r\nhost: upstream.example:80\r\n\r\n"
        ]
        assert [request.line for request in server.requests] == ["POST /v1/x HTTP/1.1"] * 2


async def test_tls_goes_through_the_tunnel_and_is_checked_against_the_upstreams_name(
    tls_pool, authority, read_all
):
    async with (
        HttpServer(answering(OK), tls=authority.server("upstream.example")) as server,
        HttpServer(http_proxy(server.port)) as proxy,
    ):
        assert await read_all(await call(tls_pool, "https://upstream.example", proxy.url)) == b"ok"
        with pytest.raises(UpstreamFault, match="tls_failed"):
            await call(tls_pool, "https://other.example", proxy.url)
        assert proxy.requests[0].line == "CONNECT upstream.example:443 HTTP/1.1"


async def test_an_http_proxy_is_given_its_credentials_and_the_upstream_is_not(pool, read_all):
    async with HttpServer(answering(OK)) as server, HttpServer(http_proxy(server.port)) as proxy:
        url = f"http://ann%40x:p%3A%25@127.0.0.1:{proxy.port}"
        assert await read_all(await call(pool, "http://upstream.example", url)) == b"ok"
        token = base64.b64encode(b"ann@x:p:%").decode()
        assert proxy.requests[0].headers["proxy-authorization"] == f"Basic {token}"
        assert "proxy-authorization" not in server.requests[0].headers


async def test_an_ipv6_upstream_is_asked_for_in_brackets(pool):
    async with HttpServer(answering(OK)) as server, HttpServer(http_proxy(server.port)) as proxy:
        await call(pool, "http://[2606:4700::1]:81", proxy.url)
        assert proxy.requests[0].line == "CONNECT [2606:4700::1]:81 HTTP/1.1"


HTTP_REFUSALS = {
    b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n": "other credentials",
    b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno": "status 403",
    b"HTTP/1.1 502 Bad Gateway\r\n\r\n": "status 502",
    b"HTTP/1.1 100 Continue\r\n\r\n": "status 100",
    b"SSH-2.0-x\r\n\r\n": "does not speak HTTP",
    b"HTTP/1.1 2x\r\n\r\n": "does not speak HTTP",
    TUNNEL + b"early": "before we did",
    b"HTTP/1.1 200 OK\r\n": "closed the connection",
    b"": "closed the connection",
    b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000: "too long",
}


@pytest.mark.parametrize("reply", HTTP_REFUSALS)
async def test_an_http_proxy_that_refuses_is_a_failed_proxy(reply, pool, eventually):
    async def script(peer):
        await peer.request()
        await peer.send(reply)

    async with HttpServer(script) as proxy:
        with pytest.raises(UpstreamFault) as caught:
            await call(pool, "http://upstream.example", f"http://u:s3cret@127.0.0.1:{proxy.port}")
        assert caught.value.kind is FaultKind.PROXY_FAILED
        assert HTTP_REFUSALS[reply] in caught.value.detail
        assert "s3cret" not in str(caught.value)
        await eventually(lambda: proxy.open_connections == 0)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
@pytest.mark.parametrize(
    "granted",
    [
        GRANTED,
        b"\x05\x00\x00\x04" + bytes(16) + b"\x04\x38",
        b"\x05\x00\x00\x03\x04host\x04\x38",
    ],
    ids=["ipv4", "ipv6", "name"],
)
async def test_a_socks_proxy_resolves_the_name_and_opens_a_tunnel(scheme, granted, pool, read_all):
    async with HttpServer(answering(OK)) as server:
        conversation = [(b"\x05\x01\x00", b"\x05\x00"), (name_request(b"upstream.example", 80), granted)]
        async with HttpServer(socks_proxy(server.port, *conversation)) as proxy:
            url = f"{scheme}://127.0.0.1:{proxy.port}"
            assert await read_all(await call(pool, "http://upstream.example", url)) == b"ok"


@pytest.mark.parametrize("chosen", [b"\x05\x02", b"\x05\x00"], ids=["wanted", "not wanted"])
async def test_a_socks_proxy_is_given_user_and_password_if_it_wants_them(
    chosen, tls_pool, authority, read_all
):
    sign_in = [(b"\x01\x03ann\x06s3cret", b"\x01\x00")] if chosen == b"\x05\x02" else []
    async with HttpServer(answering(OK), tls=authority.server("upstream.example")) as server:
        conversation = [
            (b"\x05\x02\x00\x02", chosen),
            *sign_in,
            (name_request(b"upstream.example", 443), GRANTED),
        ]
        async with HttpServer(socks_proxy(server.port, *conversation)) as proxy:
            url = f"socks5://ann:s3cret@127.0.0.1:{proxy.port}"
            assert await read_all(await call(tls_pool, "https://upstream.example", url)) == b"ok"


@pytest.mark.parametrize(
    ("host", "address"),
    [("1.2.3.4", b"\x01\x01\x02\x03\x04"), ("[2606::1]", b"\x04\x26\x06" + bytes(13) + b"\x01")],
)
async def test_a_socks_proxy_is_asked_for_an_address_as_such(host, address, pool, read_all):
    async with HttpServer(answering(OK)) as server:
        conversation = [(b"\x05\x01\x00", b"\x05\x00"), (b"\x05\x01\x00" + address + b"\x00\x51", GRANTED)]
        async with HttpServer(socks_proxy(server.port, *conversation)) as proxy:
            url = f"socks5://127.0.0.1:{proxy.port}"
            assert await read_all(await call(pool, f"http://{host}:81", url)) == b"ok"


SOCKS_REFUSALS = {
    "another version": ([(b"\x05\x01\x00", b"\x04\x00")], "does not speak SOCKS5"),
    "http": ([(b"\x05\x01\x00", b"HTTP/1.1 400 Bad\r\n\r\n")], "does not speak SOCKS5"),
    "wants a credential": ([(b"\x05\x01\x00", b"\x05\x02")], "other credentials"),
    "wants something else": ([(b"\x05\x01\x00", b"\x05\xff")], "other credentials"),
    "says nothing": ([(b"\x05\x01\x00", b"")], "closed the connection"),
    "says half": ([(b"\x05\x01\x00", b"\x05")], "closed the connection"),
    "not allowed": (
        [(b"\x05\x01\x00", b"\x05\x00"), (b"\x05", b"\x05\x02\x00\x01")],
        "not allowed by its rules",
    ),
    "refused": ([(b"\x05\x01\x00", b"\x05\x00"), (b"\x05", b"\x05\x05\x00\x01")], "connection refused"),
    "odd code": ([(b"\x05\x01\x00", b"\x05\x00"), (b"\x05", b"\x05\x63\x00\x01")], "code 99"),
    "odd address": (
        [(b"\x05\x01\x00", b"\x05\x00"), (b"\x05", b"\x05\x00\x00\x09")],
        "does not speak SOCKS5",
    ),
    "odd version late": ([(b"\x05\x01\x00", b"\x05\x00"), (b"\x05", b"\x04\x00\x00\x01")], "does not speak"),
}


@pytest.mark.parametrize("name", SOCKS_REFUSALS)
async def test_a_socks_proxy_that_refuses_is_a_failed_proxy(name, pool, eventually):
    conversation, reason = SOCKS_REFUSALS[name]

    async def script(peer):
        for expected, reply in conversation:
            await peer.receive(len(expected))
            await peer.send(reply)
        await peer.pause(0.01)

    async with HttpServer(script) as proxy:
        with pytest.raises(UpstreamFault) as caught:
            await call(pool, "http://upstream.example", f"socks5://127.0.0.1:{proxy.port}")
        assert caught.value.kind is FaultKind.PROXY_FAILED
        assert reason in caught.value.detail
        await eventually(lambda: proxy.open_connections == 0)


async def test_a_wrong_password_is_a_failed_proxy_that_names_none(pool):
    conversation = [(b"\x05\x02\x00\x02", b"\x05\x02"), (b"\x01\x03ann\x06s3cret", b"\x01\x01")]
    async with HttpServer(socks_proxy(1, *conversation)) as proxy:
        with pytest.raises(UpstreamFault) as caught:
            await call(pool, "http://upstream.example", f"socks5://ann:s3cret@127.0.0.1:{proxy.port}")
        assert caught.value.kind is FaultKind.PROXY_FAILED
        assert "s3cret" not in str(caught.value)


async def reset(peer):
    await peer.receive(1)
    peer.reset()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_that_breaks_or_is_not_there_is_a_failed_proxy(scheme, pool):
    async with HttpServer(reset) as proxy:
        url = f"{scheme}://127.0.0.1:{proxy.port}"
        with pytest.raises(UpstreamFault, match="proxy_failed"):
            await call(pool, "http://upstream.example", url)
    with pytest.raises(UpstreamFault, match="proxy_failed: the proxy cannot be reached"):
        await call(pool, "http://upstream.example", url)


async def silent(peer):
    await peer.gone()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_silent_proxy_is_given_up_in_time_and_cancelling_leaves_nothing(scheme, pool, eventually):
    async with HttpServer(silent) as proxy:
        url = f"{scheme}://127.0.0.1:{proxy.port}"
        with pytest.raises(UpstreamFault, match="connect_timeout"):
            await call(pool, "http://upstream.example", url, timeouts=Timeouts(connect_s=0.05))
        await eventually(lambda: proxy.open_connections == 0)
        before = psutil.Process().num_fds()
        task = asyncio.create_task(call(pool, "http://upstream.example", url))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await eventually(lambda: proxy.open_connections == 0 and psutil.Process().num_fds() == before)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.0.0.1",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "169.254.169.254",
        "localhost",
        "db.internal",
        "x",
    ],
)
async def test_what_is_plainly_private_is_refused_behind_a_proxy_too(host, pool):
    with pytest.raises(UpstreamFault) as caught:
        await call(pool, f"http://{host}", "http://1.1.1.1:1", allow_private=False)
    assert caught.value.kind is FaultKind.ADDRESS_REFUSED


async def test_a_private_proxy_needs_leave_like_any_other_address(pool):
    async with HttpServer(silent) as proxy:
        with pytest.raises(UpstreamFault) as caught:
            await call(pool, "http://upstream.example", proxy.url, allow_private=False)
        assert caught.value.kind is FaultKind.ADDRESS_REFUSED
        assert proxy.connections == 0
