"""Framing, breaking off and junk on one connection, over real sockets."""

import pytest

from relay.upstreams.faults import FaultKind, UpstreamFault
from tests.fakes.http_server import HttpServer, answer, answering

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


# name: (the answer's literal bytes, its body, whether the connection may be used again)
FRAMINGS = {
    "length": (OK + b"Content-Length: 5\r\n\r\nhello", b"hello", True),
    "length zero": (OK + b"Content-Length: 0\r\n\r\n", b"", True),
    "chunked": (CHUNKED + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world", True),
    "chunked with extension": (CHUNKED + b"5;name=value\r\nhello\r\n0\r\n\r\n", b"hello", True),
    "chunked with trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", b"hello", True),
    "chunked, empty": (CHUNKED + b"0\r\n\r\n", b"", True),
    "until the close": (OK + b"\r\nhello", b"hello", False),
    "until the close, empty": (OK + b"\r\n", b"", False),
    "connection close": (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
    "http 1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
    "http 1.0 kept": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
        True,
    ),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello", b"hello", True),
    "103 first, twice": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 2 + OK + b"Content-Length: 5\r\n\r\nhello",
        b"hello",
        True,
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"", True),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
    "unicode in a header": (OK + "X-Who: é中\r\nContent-Length: 2\r\n\r\nok".encode(), b"ok", True),
    "empty line after the body": (OK + b"Content-Length: 2\r\n\r\nok\r\n", b"ok", True),
}


@pytest.mark.parametrize("name", FRAMINGS)
async def test_each_framing_is_read_at_each_split(name, pool, ask, read_all, eventually):
    raw, body, is_kept = FRAMINGS[name]
    splits = range(len(raw))

    async def script(peer):
        while True:
            request = await peer.request()
            at = int(request.headers["x-at"])
            await peer.send(raw[:at], raw[at:]) if at else await peer.send(raw)
            if not is_kept:
                return

    async with HttpServer(script) as server:
        for at in splits:
            exchange = await ask(server, path="/x", headers=[(b"x-at", b"%d" % at)])
            assert await read_all(exchange) == body
            assert await exchange.read() == b""
            if not is_kept:
                await eventually(lambda: pool.open_connections == 0)
        assert server.connections == (1 if is_kept else len(splits))
    assert len(server.requests) == len(splits)


@pytest.mark.parametrize("name", ["chunked with trailers", "length", "103 first, twice", "until the close"])
async def test_framings_are_read_byte_by_byte(name, ask, read_all):
    raw, body, _ = FRAMINGS[name]

    async def script(peer):
        await peer.request()
        await peer.send(*(raw[i : i + 1] for i in range(len(raw))))

    async with HttpServer(script) as server:
        assert await read_all(await ask(server)) == body


async def test_status_and_headers_are_given_as_they_came(ask):
    headers = b"Retry-After: 3\r\nSet-Cookie: a\r\nset-cookie: b\r\n"
    async with HttpServer(answering(answer(status="429 Too Many", headers=headers))) as server:
        exchange = await ask(server)
        assert exchange.status == 429
        assert exchange.headers == [
            (b"retry-after", b"3"),
            (b"set-cookie", b"a"),
            (b"set-cookie", b"b"),
            (b"content-length", b"0"),
        ]
        assert exchange.header(b"set-cookie") == b"a"
        assert exchange.header(b"missing") is None


@pytest.mark.parametrize("headers", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_head_has_no_body_whatever_it_announces(headers, pool, ask):
    raw = OK + headers + b"\r\n"
    async with HttpServer(answering(raw, raw)) as server:
        for _ in range(2):
            exchange = await ask(server, method="HEAD")
            assert await exchange.read() == b""
        assert server.connections == 1
        assert server.requests[0].raw_head == b"HEAD /x HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % server.port


MALFORMED = {
    "length and chunked": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a list of lengths": OK + b"Content-Length: 5, 5\r\n\r\nhello",
    "signed length": OK + b"Content-Length: +5\r\n\r\nhello",
    "negative length": OK + b"Content-Length: -5\r\n\r\nhello",
    "huge length": OK + b"Content-Length: 18446744073709551616\r\n\r\nhello",
    "coding after chunked": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "gzip as transfer coding": OK + b"Transfer-Encoding: gzip\r\n\r\nhello",
    "gzip before chunked": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "something like chunked": OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunk size in words": CHUNKED + b"five\r\nhello\r\n0\r\n\r\n",
    "huge chunk size": CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "negative chunk size": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "chunk longer than its size": CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n",
    "chunk with bare line feeds": CHUNKED + b"5\nhello\n0\n\n",
    "folded header": OK + b"X-A: 1\r\n  2\r\nContent-Length: 0\r\n\r\n",
    "space before the colon": OK + b"X-A : 1\r\nContent-Length: 0\r\n\r\n",
    "nul in a header": OK + b"X-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "header without a name": OK + b": a\r\nContent-Length: 0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "status below 100": b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "html without http": b"<html><body>502</body></html>",
    "switching protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes",
    "switching protocols to nothing": b"HTTP/1.1 101 Switching\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_can_be_read_in_two_ways_is_refused(name, pool, ask, read_all, eventually):
    async with HttpServer(answering(MALFORMED[name])) as server:
        with pytest.raises(UpstreamFault) as caught:
            await read_all(await ask(server))
        assert caught.value.kind is FaultKind.MALFORMED
        assert caught.value.detail
        await eventually(lambda: pool.open_connections == 0)


CUT = {
    "in the status line": b"HTTP/1.1 20",
    "in the headers": OK + b"Content-Len",
    "in a body with a length": OK + b"Content-Length: 10\r\n\r\nhello",
    "in a chunk": CHUNKED + b"a\r\nhello",
    "between chunks": CHUNKED + b"5\r\nhello\r\n",
    "in a chunk size": CHUNKED + b"5\r\nhello\r\n1",
    "before the last line": CHUNKED + b"5\r\nhello\r\n0\r\n",
    "after a 100": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("name", CUT)
async def test_an_answer_that_breaks_off_is_cut_and_never_a_clean_end(name, how, ask, eventually):
    async def script(peer):
        await peer.request()
        await peer.send(CUT[name])
        await peer.pause(0.01)
        getattr(peer, how)()

    async with HttpServer(script) as server:
        body = b""
        with pytest.raises(UpstreamFault) as caught:
            exchange = await ask(server)
            while data := await exchange.read():
                body += data
        assert caught.value.kind is FaultKind.CUT
        assert body in (b"", b"hello")
        if b"hello" in CUT[name]:
            assert body == b"hello"
        assert server.connections == 1


async def test_a_reset_while_reading_until_the_close_is_no_end(ask):
    async def script(peer):
        await peer.request()
        await peer.send(OK + b"\r\nhello")
        await peer.pause(0.01)
        peer.reset()

    async with HttpServer(script) as server:
        exchange = await ask(server)
        assert await exchange.read() == b"hello"
        with pytest.raises(UpstreamFault, match="cut"):
            await exchange.read()


async def test_a_half_closed_peer_that_says_no_more_is_cut(ask):
    async def script(peer):
        await peer.request()
        await peer.send(OK + b"Content-Length: 10\r\n\r\nhello")
        peer.half_close()
        await peer.gone()

    async with HttpServer(script) as server:
        exchange = await ask(server)
        assert await exchange.read() == b"hello"
        with pytest.raises(UpstreamFault, match="cut"):
            await exchange.read()


JUNK = {"word": b"junk", "head": OK, "whole answer": answer(b"another"), "nul": b"\x00"}


@pytest.mark.parametrize("name", JUNK)
@pytest.mark.parametrize("is_later", [False, True], ids=["with the body", "later"])
async def test_bytes_after_the_end_make_the_connection_unusable(name, is_later, pool, ask, eventually):
    async def script(peer):
        await peer.request()
        if is_later:
            await peer.send(answer(b"hello"), JUNK[name], gap_s=0.02)
        else:
            await peer.send(answer(b"hello") + JUNK[name])
        await peer.gone()

    async with HttpServer(script, answering(answer(b"clean"))) as server:
        exchange = await ask(server)
        assert [await exchange.read(), await exchange.read()] == [b"hello", b""]
        await eventually(lambda: pool.open_connections == 0)
        assert await (await ask(server)).read() == b"clean"
