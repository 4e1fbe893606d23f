"""Requests and answers on the wire: framing, order, hang-ups, and applications that do what they must not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvicorn

from gateway.http_protocol import RelayHttp
from relay.consumers.base import HANG_UP

LIMIT_S = 10
GET = b"GET /x?a=1 HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
PLAIN = [(b"content-type", b"text/plain")]

App = Callable[[dict[str, Any], Any, Any], Any]


class House:
    """A server whose application each test sets; `gone` counts the clients that hung up."""

    app: App
    port = 0
    gone = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    async def ask(self, *pieces: bytes, gap_s: float = 0.0) -> bytes:
        """All that the server says to these pieces until it closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        async with asyncio.timeout(LIMIT_S):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(gap_s)
            said = await reader.read()
        writer.close()
        return said


@pytest.fixture
async def house() -> AsyncIterator[House]:
    made = House()
    config = uvicorn.Config(
        made, port=0, http=RelayHttp, ws="none", lifespan="off", log_config=None, timeout_keep_alive=1
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    made.port = server.servers[0].sockets[0].getsockname()[1]
    yield made
    server.should_exit = True
    await serving


def answering(*pieces: bytes, status: int = 200, headers: Any = PLAIN) -> App:
    """An application that reads the body and answers in these pieces."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": pieces[-1] if pieces else b""})

    return app


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Says what it was asked, with each piece of the body as it was told of it."""
    pieces, more = [], True
    while more:
        message = await receive()
        pieces.append(message["body"])
        more = message["more_body"]
    shown = repr((scope["method"], scope["path"], scope["query_string"], b"".join(pieces))).encode()
    headers = [(b"content-length", b"%d" % len(shown))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": shown})


def parts(answer: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return first, dict(line.split(b": ", 1) for line in lines), body


async def test_a_body_without_a_length_is_chunked(house: House) -> None:
    house.app = answering(b"one", b"", b"two!")
    status, headers, body = parts(await house.ask(GET))
    assert (status, headers[b"transfer-encoding"]) == (b"HTTP/1.1 200 OK", b"chunked")
    assert b"date" in headers
    assert body == b"3\r\none\r\n4\r\ntwo!\r\n0\r\n\r\n"


async def test_an_answer_to_http_1_0_ends_with_the_connection(house: House) -> None:
    house.app = answering(b"one", b"two")
    _, headers, body = parts(await house.ask(b"GET / HTTP/1.0\r\n\r\n"))
    assert b"transfer-encoding" not in headers
    assert (headers[b"connection"], body) == (b"close", b"onetwo")


async def test_a_head_request_gets_no_body(house: House) -> None:
    house.app = answering(b"12345", headers=[(b"content-length", b"5")])
    said = await house.ask(GET.replace(b"GET", b"HEAD") * 2)
    assert said.count(b"HTTP/1.1 200 OK") == 2
    assert b"12345" not in said


async def test_no_content_has_neither_length_nor_chunks(house: House) -> None:
    house.app = answering(status=204, headers=[])
    _, headers, body = parts(await house.ask(GET))
    assert (set(headers) & {b"transfer-encoding", b"content-length"}, body) == (set(), b"")


@pytest.mark.parametrize("size", [0, 1, 3000])
async def test_a_request_arrives_whole_at_any_split(house: House, size: int) -> None:
    house.app = echo
    request = (POST % size).replace(b"host: x", b"host: x\r\nconnection: close") + b"b" * size
    shown = repr(("POST", "/x", b"", b"b" * size)).encode()
    for at in (*range(1, min(len(request), 70)), len(request) - 1):
        if at < len(request):
            assert (await house.ask(request[:at], request[at:], gap_s=0.001)).endswith(shown)


async def test_paths_are_decoded_and_queries_are_not(house: House) -> None:
    house.app = echo
    said = await house.ask(b"GET http://x/a%20b/%E9%A9%BF?k=%20#f HTTP/1.1\r\nhost: x\r\n\r\n")
    assert repr(("GET", "/a b/驿", b"k=%20", b"")).encode() in said


async def test_requests_sent_ahead_are_answered_in_their_order(house: House) -> None:
    house.app = echo
    said = await house.ask(b"".join(POST.replace(b"/x", b"/%d" % n) % 1 + b"b" for n in range(5)))
    assert [said.index(b"'/%d'" % n) for n in range(5)] == sorted(said.index(b"'/%d'" % n) for n in range(5))


@pytest.mark.parametrize("hosts", [b"", b"host: a\r\nhost: b\r\n"])
async def test_a_request_names_its_host_once(house: House, hosts: bytes) -> None:
    house.app = echo
    said = await house.ask(b"GET / HTTP/1.1\r\n" + hosts + b"\r\n" + GET)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9\r\n\r\n", b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n"]
)
async def test_what_is_no_request_is_told_so(house: House, junk: bytes) -> None:
    house.app = echo
    assert (await house.ask(junk)).startswith(b"HTTP/1.1 400 ")


async def test_a_client_that_waits_for_leave_to_send_gets_it(house: House) -> None:
    house.app = echo
    head = (POST % 2).replace(b"host: x", b"host: x\r\nexpect: 100-continue")
    said = await house.ask(head, b"hi", gap_s=0.05)
    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert b"b'hi'" in said


async def test_an_answer_before_the_body_leaves_the_connection_usable(house: House) -> None:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    house.app = app
    said = await house.ask(POST % 100_000, b"x" * 50_000, b"x" * 50_000, GET, gap_s=0.02)
    assert said.count(b"HTTP/1.1 413") == 2


async def _nothing(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Returns without a word."""


async def _breaks(scope: dict[str, Any], receive: Any, send: Any) -> None:
    raise ValueError("broke")


async def _half(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ValueError("broke")


@pytest.mark.parametrize("app", [_nothing, _breaks])
async def test_an_application_that_says_nothing_is_a_500(house: House, app: App) -> None:
    house.app = app
    assert (await house.ask(GET)).startswith(b"HTTP/1.1 500 ")


async def test_an_application_that_breaks_midway_never_ends_its_answer(house: House) -> None:
    house.app = _half
    said = await house.ask(GET)
    assert said.endswith(b"4\r\nhalf\r\n")


@pytest.mark.parametrize(
    "headers",
    [[(b"a", b"b\r\nc: d")], [(b"a\r\nb", b"c")], [(b"a", b"b\nc")], [(b"a", b"b\0")]],
)
async def test_an_illegal_header_never_reaches_the_client(house: House, headers: Any) -> None:
    house.app = answering(b"x", headers=headers)
    assert await house.ask(GET) == b""


@pytest.mark.parametrize(("length", "body"), [(b"2", b"123"), (b"4", b"123")])
async def test_a_body_of_another_length_is_never_a_clean_end(
    house: House, length: bytes, body: bytes
) -> None:
    house.app = answering(body, headers=[(b"content-length", length)])
    said = await house.ask(GET * 2)
    assert said.count(b"HTTP/1.1 200") <= 1


async def test_an_idle_connection_is_closed_after_a_while(house: House) -> None:
    house.app = echo
    began = asyncio.get_running_loop().time()
    await house.ask(GET)
    assert 0.9 < asyncio.get_running_loop().time() - began < LIMIT_S / 2


@pytest.mark.parametrize("ahead", [0, 2])
async def test_a_hang_up_is_told_at_once_also_with_requests_sent_ahead(house: House, ahead: int) -> None:
    began, gone = asyncio.Event(), asyncio.Event()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        task = scope["extensions"][HANG_UP](gone.set)
        assert task is asyncio.current_task()
        began.set()
        await gone.wait()
        assert (await receive())["type"] in ("http.request", "http.disconnect")

    house.app = app
    _, writer = await asyncio.open_connection("127.0.0.1", house.port)
    writer.write(GET * (1 + ahead))
    async with asyncio.timeout(LIMIT_S):
        await began.wait()
        writer.transport.abort()
        await gone.wait()


async def test_nobody_is_told_of_a_hang_up_after_a_complete_answer(house: House) -> None:
    told = asyncio.Event()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scope["extensions"][HANG_UP](told.set)
        await answering(b"x", headers=[(b"content-length", b"1")])(scope, receive, send)
        assert (await receive())["type"] == "http.disconnect"

    house.app = app
    assert (await house.ask(GET)).endswith(b"x")
    assert not told.is_set()
