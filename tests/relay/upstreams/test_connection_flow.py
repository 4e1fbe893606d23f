"""What one connection takes and gives: floods, back-pressure, large requests."""

import asyncio

import psutil
import pytest

from relay.upstreams.connection import Connection
from relay.upstreams.exchange import Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.pool import Pool
from tests.fakes.http_server import HttpServer, answer, answering, chunk

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


class FullTransport(asyncio.Transport):
    """A transport that keeps what it is given because the socket takes no more, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Connection | None = None
        self.kept = b""
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.kept += data
        assert self.protocol is not None
        self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


FLOODS = {
    "many headers": OK + b"a: b\r\n" * 300,
    "long headers": OK + (b"a: " + b"b" * 1000 + b"\r\n") * 100,
    "one endless header": OK + b"a: " + b"b" * 100_000,
    "endless reason": b"HTTP/1.1 200 " + b"x" * 100_000,
    "endless interim answers": b"HTTP/1.1 103 Early\r\nlink: </aaaaaaaaaaaaaaaaaa>\r\n\r\n" * 2000,
    "endless trailers": CHUNKED + b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * 40_000,
    "endless chunk extension": CHUNKED + b"1;" + b"x" * 200_000,
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_before_or_after_the_body_is_refused(name, ask, read_all):
    async def script(peer):
        await peer.request()
        raw = FLOODS[name]
        pieces = [raw[i : i + 50_000] for i in range(0, len(raw), 50_000)]
        await peer.send(*pieces)
        await peer.send(b"\r\n\r\n")
        await peer.gone()

    async with HttpServer(script) as server:
        with pytest.raises(UpstreamFault) as caught:
            await read_all(await ask(server))
        assert caught.value.kind is FaultKind.TOO_LARGE


@pytest.mark.parametrize(("size", "is_refused"), [(60_000, False), (70_000, True)])
async def test_headers_are_measured_by_themselves_when_they_come_with_a_body(size, is_refused):
    pool, transport = Pool(), FullTransport()
    connection = Connection(pool, "key", asyncio.get_running_loop(), idle_s=9)
    transport.protocol = connection
    connection.connection_made(transport)
    exchange = Exchange(Timeouts(), started=0, reused=False)
    connection.begin(exchange, b"GET / HTTP/1.1\r\n\r\n", [], 0)
    connection.data_received(answer(b"x" * 100_000, headers=b"a: " + b"b" * size + b"\r\n"))
    assert (exchange.fault is not None) is is_refused
    assert exchange.status == (0 if is_refused else 200)
    connection.connection_lost(None)
    await pool.close()


async def test_small_headers_in_one_piece_with_a_large_body_are_no_flood(ask, read_all):
    body = b"x" * 200_000
    async with HttpServer(answering(answer(body))) as server:
        assert await read_all(await ask(server)) == body


async def test_a_caller_that_does_not_read_holds_the_upstream_up(ask, read_all):
    """50 MB for somebody who is not looking: a few hundred kilobytes are taken, then the sender is made to
    wait."""
    size, piece = 50_000_000, b"x" * 500_000
    sent = 0

    async def script(peer):
        nonlocal sent
        await peer.request()
        await peer.send(OK + b"Content-Length: %d\r\n\r\n" % size)
        while sent < size:
            await peer.send(piece)
            sent += len(piece)
        await peer.gone()

    async with HttpServer(script) as server:
        before = psutil.Process().memory_info().rss
        exchange = await ask(server)
        last = -1
        while last != sent:
            last = sent
            await asyncio.sleep(0.1)
        assert exchange.unread_bytes <= 600_000
        assert sent < 25_000_000  # what both kernels' socket buffers took
        taken = 0
        while data := await exchange.read():
            taken += len(data)
        assert taken == size
        after = psutil.Process().memory_info().rss
        assert after - before < 20_000_000


async def test_a_paused_connection_is_read_on_when_it_is_idle_again(pool, ask, read_all, eventually):
    body = b"x" * 3_000_000

    async def script(peer):
        await peer.request()
        await peer.send(answer(body))
        await peer.pause(0.02)

    async with HttpServer(script) as server:
        exchange = await ask(server)
        await asyncio.sleep(0.01)
        assert await read_all(exchange) == body
        await eventually(lambda: pool.open_connections == 0)  # the peer's close was seen
        assert pool.idle_connections == 0


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
async def test_a_request_arrives_whole_whatever_its_size(size, ask, read_all):
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    async with HttpServer(answering(answer(b"ok"), answer(b"ok"))) as server:
        for _ in range(2):
            exchange = await ask(server, body=body)
            assert await read_all(exchange) == b"ok"
            assert exchange.started <= exchange.connected <= exchange.sent <= exchange.headers_at
        assert [request.body == body for request in server.requests] == [True, True]
        assert server.connections == 1


async def test_a_body_in_segments_of_any_kind_is_sent_in_order(ask, pool):
    segments = [b"a" * 10, bytearray(b"b" * 100_000), memoryview(b"c" * 100_000)[1:], b"", memoryview(b"d")]
    async with HttpServer(answering(answer(b"ok"))) as server:
        exchange = await ask(server, segments=segments)
        exchange.close()
        assert server.requests[0].body == b"".join(segments)


async def test_a_large_request_waits_for_the_reader_and_is_not_copied(ask):
    """The peer takes its time: what lies in buffers of ours meanwhile is a slice, not the body."""
    body = bytearray(64_000_000)

    async def script(peer):
        await peer.pause(0.3)
        await peer.request()
        await peer.send(answer(b"ok"))

    async with HttpServer(script) as server:
        before = psutil.Process().memory_info().rss
        task = asyncio.create_task(ask(server, body=body))
        await asyncio.sleep(0.2)
        assert psutil.Process().memory_info().rss - before < 20_000_000
        exchange = await task
        assert await exchange.read() == b"ok"
        assert len(server.requests[0].body) == len(body)


async def test_an_early_answer_is_read_and_the_connection_not_used_again(pool, ask, read_all, eventually):
    async def script(peer):
        await peer.receive(1000)
        await peer.send(answer(b"too much", status="413 Content Too Large"))
        await peer.pause(0.1)

    async with HttpServer(script) as server:
        exchange = await ask(server, body=b"x" * 30_000_000)
        assert exchange.status == 413
        assert await read_all(exchange) == b"too much"
        assert pool.idle_connections == 0
        await eventually(lambda: pool.open_connections == 0)


@pytest.mark.parametrize("is_stuck", [True, False])
async def test_a_connection_is_not_used_again_while_a_request_is_still_in_it(is_stuck):
    """All of the request was handed over, but the peer answered without reading it."""
    pool, transport = Pool(), FullTransport()
    connection = Connection(pool, "key", asyncio.get_running_loop(), idle_s=9)
    transport.protocol = connection
    connection.connection_made(transport)
    exchange = Exchange(Timeouts(), started=0, reused=False)
    connection.begin(exchange, b"POST / HTTP/1.1\r\n\r\n", [b"x"], 1)
    assert transport.kept == b"POST / HTTP/1.1\r\n\r\nx"
    if not is_stuck:
        connection.resume_writing()
    connection.data_received(answer(b"ok"))
    assert await exchange.read() == b"ok"
    assert (transport.is_aborted, pool.idle_connections) == ((True, 0) if is_stuck else (False, 1))
    connection.connection_lost(None)
    await pool.close()


async def test_a_peer_that_closes_while_we_send_is_a_failed_send(ask):
    async def script(peer):
        await peer.receive(1000)
        peer.reset()

    async with HttpServer(script) as server:
        with pytest.raises(UpstreamFault) as caught:
            await ask(server, body=b"x" * 30_000_000)
        assert caught.value.kind is FaultKind.SEND_FAILED


async def test_a_peer_that_says_goodbye_while_we_send_is_not_waited_for(ask):
    """It closed its half and does not read either: the transport would try for ever to send the rest."""

    async def script(peer):
        await peer.receive(1000)
        peer.half_close()
        await asyncio.sleep(30)

    async with HttpServer(script) as server:
        with pytest.raises(UpstreamFault) as caught:
            await ask(server, body=b"x" * 30_000_000)
        assert caught.value.kind is FaultKind.SEND_FAILED


async def test_chunks_that_come_together_are_read_together(ask):
    async with HttpServer(answering(CHUNKED + chunk(b"a") + chunk(b"b") + chunk(b""))) as server:
        exchange = await ask(server)
        assert await exchange.read() == b"ab"
        assert await exchange.read() == b""
