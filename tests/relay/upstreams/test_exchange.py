"""Deadlines, decoding and giving up, as the holder of an exchange sees them."""

import asyncio
import gzip
import math
import time
import zlib

import pytest

from relay.upstreams.exchange import Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from tests.fakes.http_server import HttpServer, answer, answering, chunk

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FOREVER = math.inf


def limits(*, first_token_s: float = 5, idle_s: float = 5, total_s: float = 10) -> Timeouts:
    return Timeouts(connect_s=5, first_token_s=first_token_s, idle_s=idle_s, total_s=total_s)


def says(*pieces: bytes, gap_s: float = 0.0):
    """A script that sends what it has and then nothing more, until the client leaves."""

    async def script(peer):
        await peer.request()
        await peer.send(*pieces, gap_s=gap_s)
        await peer.gone()

    return script


async def test_it_works(ask, pool):
    async with HttpServer(answering(CHUNKED + chunk(b"hello") + chunk(b""))) as server:
        exchange = await ask(server)
        assert exchange.status == 200
        assert not exchange.reused
        assert await exchange.read() == b"hello"
        assert await exchange.read() == b""
        exchange.close()
        assert await exchange.read() == b""
        assert pool.idle_connections == 1


SILENCES = {
    "no answer": ([], limits(first_token_s=0.05), FaultKind.HEADERS_TIMEOUT),
    "half a header": ([b"HTTP/1.1 200 OK\r\nx"], limits(first_token_s=0.05), FaultKind.HEADERS_TIMEOUT),
    "interim answers only": (
        [b"HTTP/1.1 102 Processing\r\n\r\n"],
        limits(first_token_s=0.05),
        FaultKind.HEADERS_TIMEOUT,
    ),
    "headers only": ([CHUNKED], limits(first_token_s=0.2), FaultKind.FIRST_TOKEN_TIMEOUT),
    "after the first piece": ([CHUNKED + chunk(b"a")], limits(idle_s=0.05), FaultKind.IDLE_TIMEOUT),
    "no answer, total": ([], limits(first_token_s=FOREVER, total_s=0.05), FaultKind.TOTAL_TIMEOUT),
    "headers only, total": ([CHUNKED], limits(first_token_s=FOREVER, total_s=0.05), FaultKind.TOTAL_TIMEOUT),
    "after the first piece, total": (
        [CHUNKED + chunk(b"a")],
        limits(idle_s=FOREVER, total_s=0.05),
        FaultKind.TOTAL_TIMEOUT,
    ),
}


@pytest.mark.parametrize("name", SILENCES)
async def test_each_silence_ends_with_its_own_kind(name, ask, pool, read_all, eventually):
    pieces, timeouts, kind = SILENCES[name]
    async with HttpServer(says(*pieces)) as server:
        started = time.perf_counter()
        with pytest.raises(UpstreamFault) as caught:
            await read_all(await ask(server, timeouts=timeouts))
        assert caught.value.kind is kind
        assert 0.045 < time.perf_counter() - started < 1.5
        await eventually(lambda: pool.open_connections == 0 and server.open_connections == 0)


async def test_a_drip_resets_the_idle_limit_but_not_the_total_one(ask):
    drip = [CHUNKED] + [chunk(b"x")] * 1000
    async with HttpServer(says(*drip, gap_s=0.01)) as server:
        exchange = await ask(server, timeouts=limits(idle_s=0.5, total_s=0.3))
        with pytest.raises(UpstreamFault) as caught:
            while await exchange.read():
                pass
        assert caught.value.kind is FaultKind.TOTAL_TIMEOUT


async def test_a_drip_in_the_headers_does_not_move_their_limit(ask):
    drip = [b"HTTP/1.1 200 OK\r\n"] + [b"x: y\r\n"] * 100
    async with HttpServer(says(*drip, gap_s=0.01)) as server:
        with pytest.raises(UpstreamFault) as caught:
            await ask(server, timeouts=limits(first_token_s=0.1))
        assert caught.value.kind is FaultKind.HEADERS_TIMEOUT


async def test_a_limit_of_the_callers_holds_over_several_reads(ask):
    """The first content is awaited past role chunks and pings: each of them is a read, the limit stands."""
    drip = [CHUNKED] + [chunk(b": ping\n\n")] * 1000
    async with HttpServer(says(*drip, gap_s=0.01)) as server:
        exchange = await ask(server, timeouts=limits(idle_s=0.001))
        exchange.expect_within(0.3, FaultKind.FIRST_TOKEN_TIMEOUT)
        reads = 0
        with pytest.raises(UpstreamFault) as caught:
            while await exchange.read():
                reads += 1
        assert caught.value.kind is FaultKind.FIRST_TOKEN_TIMEOUT
        assert reads >= 3


async def test_a_limit_for_each_wait_begins_anew_with_each_read(ask):
    drip = [CHUNKED] + [chunk(b"x")] * 20 + [chunk(b"")]
    async with HttpServer(says(*drip, gap_s=0.02)) as server:
        exchange = await ask(server)
        exchange.expect_within(0.3, FaultKind.IDLE_TIMEOUT, each_wait=True)
        body = b""
        while data := await exchange.read():
            body += data
        assert body == b"x" * 20

    async with HttpServer(says(CHUNKED, chunk(b"x"))) as server:
        exchange = await ask(server)
        exchange.expect_within(0.05, FaultKind.IDLE_TIMEOUT, each_wait=True)
        assert await exchange.read() == b"x"
        with pytest.raises(UpstreamFault, match="idle_timeout"):
            await exchange.read()


async def test_a_limit_can_be_moved_forward_and_back(ask):
    async with HttpServer(says(CHUNKED)) as server:
        exchange = await ask(server)
        exchange.expect_within(0.02, FaultKind.FIRST_TOKEN_TIMEOUT)
        exchange.expect_within(0.2, FaultKind.IDLE_TIMEOUT)
        started = time.perf_counter()
        with pytest.raises(UpstreamFault, match="idle_timeout"):
            await exchange.read()
        assert time.perf_counter() - started > 0.15


async def test_a_caller_that_is_busy_elsewhere_is_no_idle_upstream(ask):
    """A slow client keeps us from reading; when we come back, what is there is there."""
    async with HttpServer(says(CHUNKED + chunk(b"a"), chunk(b"b") + chunk(b""), gap_s=0.02)) as server:
        exchange = await ask(server, timeouts=limits(idle_s=0.05))
        assert await exchange.read() == b"a"
        await asyncio.sleep(0.15)
        assert await exchange.read() == b"b"
        assert await exchange.read() == b""


async def test_a_limit_that_passes_while_nobody_waits_ends_nothing(ask):
    async def script(peer):
        await peer.request()
        await peer.send(CHUNKED, chunk(b"a"), chunk(b"b"), gap_s=0.02)
        await peer.pause(0.6)
        await peer.send(chunk(b""))
        await peer.gone()

    async with HttpServer(script) as server:
        exchange = await ask(server)
        exchange.expect_within(0.3, FaultKind.FIRST_TOKEN_TIMEOUT)
        assert await exchange.read() == b"a"
        await asyncio.sleep(0.4)
        assert await exchange.read() == b"b"
        exchange.expect_within(5, FaultKind.IDLE_TIMEOUT)
        assert await exchange.read() == b""


async def test_the_total_limit_runs_whether_anybody_reads_or_not(ask, pool, eventually):
    async with HttpServer(says(CHUNKED + chunk(b"a"))) as server:
        exchange = await ask(server, timeouts=limits(total_s=0.05))
        await eventually(lambda: pool.open_connections == 0)
        assert await exchange.read() == b"a"
        with pytest.raises(UpstreamFault, match="total_timeout"):
            await exchange.read()


async def test_a_timer_left_over_from_one_call_does_not_end_the_next(ask):
    async def script(peer):
        await peer.request()
        await peer.send(answer(b"a"))
        await peer.request()
        await peer.pause(0.5)
        await peer.send(answer(b"b"))

    async with HttpServer(script) as server:
        assert await (await ask(server, timeouts=limits(first_token_s=0.3))).read() == b"a"
        exchange = await ask(server, timeouts=limits(first_token_s=5))
        assert exchange.reused
        assert await exchange.read() == b"b"


async def test_a_later_call_on_the_same_connection_has_its_own_shorter_limit(ask):
    async def script(peer):
        await peer.request()
        await peer.send(answer(b"a"))
        await peer.request()
        await peer.gone()

    async with HttpServer(script) as server:
        assert await (await ask(server)).read() == b"a"
        with pytest.raises(UpstreamFault, match="headers_timeout"):
            await ask(server, timeouts=limits(first_token_s=0.05))


async def test_what_came_before_a_fault_is_read_before_it(ask):
    async def script(peer):
        await peer.request()
        await peer.send(CHUNKED + chunk(b"one") + chunk(b"two"))

    async with HttpServer(script) as server:
        exchange = await ask(server)
        await asyncio.sleep(0.05)
        assert await exchange.read() == b"onetwo"
        for _ in range(2):
            with pytest.raises(UpstreamFault, match="cut"):
                await exchange.read()


@pytest.mark.parametrize(
    "pieces", [[CHUNKED], [CHUNKED + chunk(b"a")]], ids=["before the body", "in the body"]
)
async def test_closing_early_reaches_the_upstream_at_once(pieces, ask, pool, eventually):
    left_at = 0.0

    async def script(peer):
        nonlocal left_at
        await peer.request()
        await peer.send(*pieces)
        left_at = await peer.gone()

    async with HttpServer(script) as server:
        exchange = await ask(server)
        closed_at = time.perf_counter()
        exchange.close()
        exchange.close()
        await eventually(lambda: server.open_connections == 0)
        assert left_at - closed_at < 0.2
        assert pool.open_connections == pool.idle_connections == 0
        with pytest.raises(UpstreamFault, match="closed"):
            await exchange.read()


@pytest.mark.parametrize("headers", [b"", b"content-encoding: gzip\r\n"])
async def test_what_was_closed_unread_is_no_clean_end(headers, ask, pool, eventually):
    async with HttpServer(answering(answer(gzip.compress(b"hello"), headers=headers))) as server:
        exchange = await ask(server)
        await eventually(lambda: pool.idle_connections == 1)
        exchange.close()
        with pytest.raises(UpstreamFault, match="closed"):
            await exchange.read()
        assert pool.idle_connections == 1


async def test_cancelling_a_read_closes_the_connection(ask, pool, eventually):
    async with HttpServer(says(CHUNKED)) as server:
        exchange = await ask(server)
        task = asyncio.create_task(exchange.read())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: pool.open_connections == 0 and server.open_connections == 0)


async def test_closing_wakes_a_reader_in_another_task(ask):
    async with HttpServer(says(CHUNKED)) as server:
        exchange = await ask(server)
        task = asyncio.create_task(exchange.read())
        await asyncio.sleep(0.01)
        exchange.close()
        with pytest.raises(UpstreamFault, match="closed"):
            await task


async def test_two_readers_at_once_are_refused(ask):
    async with HttpServer(says(CHUNKED)) as server:
        exchange = await ask(server)
        task = asyncio.create_task(exchange.read())
        await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="one reader"):
            await exchange.read()
        with pytest.raises(UpstreamFault, match="closed"):
            await task


EVENTS = [b'data: {"n": %d}\n\n' % n for n in range(5)]


def sync_flushed(wbits: int) -> list[bytes]:
    """The events as a server compresses a stream: each one can be read when its bytes are there."""
    z = zlib.compressobj(wbits=wbits)
    return [z.compress(event) + z.flush(zlib.Z_SYNC_FLUSH) for event in EVENTS] + [z.flush()]


@pytest.mark.parametrize(
    ("coding", "wbits"), [(b"gzip", 31), (b"deflate", 15), (b"Deflate", -15), (b"x-gzip", 31)]
)
async def test_a_compressed_event_is_delivered_as_soon_as_its_bytes_came(coding, wbits, ask):
    pieces = sync_flushed(wbits)
    go_on = asyncio.Event()

    async def script(peer):
        await peer.request()
        await peer.send(CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-encoding: %b\r\n\r\n" % coding))
        for piece in pieces:
            await peer.send(chunk(piece))
            await go_on.wait()
            go_on.clear()
        await peer.send(chunk(b""))
        await peer.gone()

    async with HttpServer(script) as server:
        exchange = await ask(server)
        for event in EVENTS:
            assert await exchange.read() == event
            go_on.set()
        go_on.set()
        await asyncio.sleep(0.01)
        go_on.set()
        assert await exchange.read() == b""


async def test_headers_tell_the_truth_about_a_decoded_body(ask, read_all):
    packed = gzip.compress(b"hello")
    raw = answer(packed, headers=b"content-encoding: gzip\r\nx-kept: 1\r\n")
    async with HttpServer(answering(raw, raw)) as server:
        exchange = await ask(server)
        assert exchange.headers == [(b"x-kept", b"1")]
        assert await read_all(exchange) == b"hello"
        exchange = await ask(server, decode=False)
        assert exchange.header(b"content-encoding") == b"gzip"
        assert exchange.header(b"content-length") == b"%d" % len(packed)
        assert await read_all(exchange) == packed


async def test_a_coding_that_was_not_asked_for_is_refused(ask):
    async with HttpServer(answering(answer(b"?", headers=b"content-encoding: br\r\n"))) as server:
        with pytest.raises(UpstreamFault, match="malformed"):
            await ask(server)
    async with HttpServer(answering(answer(b"?", headers=b"content-encoding: br\r\n"))) as server:
        assert await (await ask(server, decode=False)).read() == b"?"


async def test_a_compressed_body_that_breaks_off_inside_a_complete_frame_is_cut(ask):
    packed = gzip.compress(b"hello world")[:-6]
    async with HttpServer(answering(answer(packed, headers=b"content-encoding: gzip\r\n"))) as server:
        exchange = await ask(server)
        assert await exchange.read() == b"hello world"
        for _ in range(2):
            with pytest.raises(UpstreamFault, match="cut"):
                await exchange.read()


async def test_a_large_compressed_body_is_read_on_after_a_pause(ask):
    """Compressed bytes above the pause mark, a reader that comes late: nothing stalls, nothing is lost."""
    plain = bytes(range(256)) * 8
    packed = gzip.compress(plain, compresslevel=0)
    raw = answer(packed * 1000, headers=b"content-encoding: gzip\r\n")
    async with HttpServer(answering(raw)) as server:
        exchange = await ask(server)
        await asyncio.sleep(0.02)
        total = 0
        while data := await exchange.read():
            assert len(data) <= 262_144
            total += len(data)
        assert total == len(plain) * 1000


async def test_a_bomb_is_refused_after_a_bounded_part(ask, read_all):
    z = zlib.compressobj(9, wbits=31)
    bomb = b"".join(z.compress(bytes(1_000_000)) for _ in range(40)) + z.flush()
    async with HttpServer(answering(answer(bomb, headers=b"content-encoding: gzip\r\n"))) as server:
        exchange = await ask(server)
        taken = 0
        with pytest.raises(UpstreamFault) as caught:
            while data := await exchange.read():
                assert len(data) <= 262_144
                taken += len(data)
        assert caught.value.kind is FaultKind.TOO_LARGE
        assert taken < 20_000_000


@pytest.mark.parametrize("headers", [b"", b"content-encoding: gzip\r\n"])
async def test_a_body_above_the_callers_limit_is_refused(headers, ask, pool, read_all):
    plain = bytes(range(256)) * 400
    body = gzip.compress(plain) if headers else plain
    async with HttpServer(answering(answer(body, headers=headers), answer(body, headers=headers))) as server:
        assert await read_all(await ask(server, max_body_bytes=len(plain))) == plain
        with pytest.raises(UpstreamFault) as caught:
            await read_all(await ask(server, max_body_bytes=len(plain) - 1))
        assert caught.value.kind is FaultKind.TOO_LARGE
