import gzip
import math

import httpx
import pytest

from relay.upstreams import httpx_transport
from relay.upstreams.faults import FaultKind
from relay.upstreams.httpx_transport import PoolTransport
from tests.fakes.http_server import HttpServer, answer, answering, chunk

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
async def client(pool):
    async with httpx.AsyncClient(transport=PoolTransport(pool, allow_private=True)) as client:
        yield client


async def test_it_works(client, pool):
    async with HttpServer(
        answering(answer(b'{"a": 1}', headers=b"X-Id: 7\r\n"), answer(status="404 No"))
    ) as server:
        response = await client.post(f"{server.url}/v1/x?y=%20z", json={"q": "é"}, headers={"x-a": "b"})
        assert (response.status_code, response.json(), response.headers["x-id"]) == (200, {"a": 1}, "7")
        assert response.reason_phrase == "OK"
        assert (await client.get(f"{server.url}/none")).status_code == 404
        assert server.connections == 1
        assert pool.idle_connections == 1
        first, second = server.requests
        assert first.line == "POST /v1/x?y=%20z HTTP/1.1"
        assert first.body == '{"q":"é"}'.encode()
        assert first.headers["host"] == f"127.0.0.1:{server.port}"
        assert first.headers["x-a"] == "b"
        assert "connection" not in first.headers
        assert "content-length" not in second.headers


async def test_a_stream_is_read_as_it_comes_and_closed_early(client, pool, eventually):
    async def script(peer):
        await peer.request()
        await peer.send(CHUNKED + chunk(b"a"))
        await peer.send(chunk(b"b"))
        await peer.gone()

    async with HttpServer(script) as server:
        async with client.stream("GET", server.url) as response:
            async for data in response.aiter_raw():
                assert data.startswith(b"a")
                break
        await eventually(lambda: pool.open_connections == 0 and server.open_connections == 0)


async def test_httpx_undoes_compression_itself(client):
    raw = answer(gzip.compress(b"hello"), headers=b"content-encoding: gzip\r\n")
    async with HttpServer(answering(raw)) as server:
        response = await client.get(server.url)
        assert response.content == b"hello"
        assert "gzip" in server.requests[0].headers["accept-encoding"]


async def test_an_uploaded_stream_is_sent_with_its_length(client):
    async def parts():
        yield b"one"
        yield b"two"

    async with HttpServer(answering(answer(), answer())) as server:
        await client.post(server.url, content=parts())
        await client.post(server.url, files={"f": b"x"})
        assert server.requests[0].body == b"onetwo"
        assert b'name="f"' in server.requests[1].body


async def hang_up(peer):
    await peer.request()


async def half(peer):
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")


async def silent(peer):
    await peer.gone()


async def stall(peer):
    await peer.request()
    await peer.send(CHUNKED)
    await peer.gone()


@pytest.mark.parametrize("script", [hang_up, half, answering(b"nonsense\r\n\r\n")])
async def test_a_broken_answer_is_a_protocol_error(script, client):
    async with HttpServer(script) as server:
        with pytest.raises(httpx.RemoteProtocolError) as caught:
            await client.get(server.url)
        assert str(caught.value.request.url) == server.url


@pytest.mark.parametrize("script", [silent, stall])
async def test_silence_is_a_read_timeout(script, client):
    async with HttpServer(script) as server:
        with pytest.raises(httpx.ReadTimeout):
            await client.get(server.url, timeout=httpx.Timeout(5, read=0.1))


async def test_what_cannot_be_reached_is_a_connect_error(client, pool):
    with pytest.raises(httpx.ConnectError):
        await client.get("http://127.0.0.1:1")
    async with httpx.AsyncClient(transport=PoolTransport(pool)) as guarded:
        with pytest.raises(httpx.ConnectError, match="address_refused"):
            await guarded.get("http://127.0.0.1:1")


async def test_a_redirect_to_a_private_address_is_refused_too(pool, monkeypatch):
    async with HttpServer(answering(answer())) as inner:
        moved = answer(status="302 Found", headers=b"location: http://[::1]:%d/\r\n" % inner.port)
        async with HttpServer(answering(moved)) as outer:
            monkeypatch.setattr("relay.upstreams.address.is_public", lambda ip: ip == "127.0.0.1")
            transport = PoolTransport(pool)
            async with httpx.AsyncClient(transport=transport, follow_redirects=True) as guarded:
                with pytest.raises(httpx.ConnectError, match="address_refused"):
                    await guarded.get(outer.url)
        assert inner.connections == 0


async def test_a_proxy_is_gone_through(pool):
    async with HttpServer(answering(answer(b"ok"))) as server:

        async def proxy_script(peer):
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
            await peer.tunnel_to(server.port)

        async with HttpServer(proxy_script) as proxy:
            transport = PoolTransport(pool, allow_private=True, proxy=proxy.url)
            async with httpx.AsyncClient(transport=transport) as client:
                assert (await client.get("http://upstream.example/")).text == "ok"


async def test_an_answer_above_the_limit_is_refused(pool):
    async with HttpServer(answering(answer(b"x" * 1001))) as server:
        transport = PoolTransport(pool, allow_private=True, max_body_bytes=1000)
        async with httpx.AsyncClient(transport=transport) as client:
            with pytest.raises(httpx.RemoteProtocolError, match="too_large"):
                await client.get(server.url)


@pytest.mark.parametrize("url", ["ftp://a.example/", "http://a..example/"])
async def test_an_address_that_cannot_be_meant_is_unsupported(url, client):
    with pytest.raises((httpx.UnsupportedProtocol, httpx.InvalidURL)):
        await client.get(url)


async def test_an_ipv6_address_is_called(client):
    with pytest.raises(httpx.ConnectError, match="::1"):
        await client.get("http://[::1]:1/")


def test_no_timeout_of_httpx_is_no_limit_of_its_own(pool):
    request = httpx.Request(
        "GET", "http://a.example", extensions={"timeout": {"connect": None, "read": None}}
    )
    limits = PoolTransport(pool, total_s=9)._timeouts(request)
    assert (limits.connect_s, limits.first_token_s, limits.idle_s, limits.total_s) == (math.inf,) * 3 + (9,)


def test_each_kind_has_an_exception():
    assert set(httpx_transport._EXCEPTIONS) == set(FaultKind)
