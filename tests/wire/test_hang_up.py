"""A client that leaves: its upstream is closed within 0.2 s, wherever the call stands, and whichever way it leaves."""

import random
from collections.abc import Callable
from functools import partial
from time import perf_counter

import pytest

from tests.fakes.http_server import Peer, in_thread
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import World, at_once, eventually

SOON_S = 0.2
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
WORD = (
    b'data: {"id":"a","model":"x","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
)
FINISH = b'data: {"id":"a","model":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
# How far the upstream has come when the client leaves, and whether the client has got a byte by then.
PLACES = {
    "before its headers": (b"", False),
    "behind its headers": (HEAD, False),
    "behind a comment": (HEAD + b": hello\n\n", False),
    "behind content": (HEAD + WORD, True),
    "behind the finish reason": (HEAD + WORD + FINISH, True),
}
LEAVING: dict[str, Callable[[RawClient], None]] = {"closes": RawClient.close, "resets": RawClient.reset}


@pytest.mark.parametrize("way", LEAVING)
@pytest.mark.parametrize("place", PLACES)
def test_the_upstream_of_a_stream_is_closed_soon(world: World, place: str, way: str) -> None:
    said, has_content = PLACES[place]
    gone_at: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        if said:
            await peer.send(said)
        gone_at.append(await peer.gone())

    with in_thread(script) as server:
        tenant = world.tenant(f"{server.url}/v1")
        client = tenant.start()
        eventually(lambda: server.requests)
        if has_content:
            client.read_head()
            client.read_event()
        left_at = perf_counter()
        LEAVING[way](client)
        eventually(lambda: gone_at)
    assert gone_at[0] - left_at < SOON_S
    (record,) = tenant.check_books(1)
    assert record.status == "client_gone"
    assert (record.amount_nano > 0) is has_content


@pytest.mark.parametrize("way", LEAVING)
@pytest.mark.parametrize("said", [b"", b'HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{"choices":['])
def test_the_upstream_of_a_plain_call_is_closed_soon(world: World, said: bytes, way: str) -> None:
    gone_at: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        if said:
            await peer.send(said)
        gone_at.append(await peer.gone())

    with in_thread(script) as server:
        tenant = world.tenant(f"{server.url}/v1")
        client = tenant.start(stream=None)
        eventually(lambda: server.requests)
        left_at = perf_counter()
        LEAVING[way](client)
        eventually(lambda: gone_at)
    assert gone_at[0] - left_at < SOON_S
    (record,) = tenant.check_books(1)
    assert (record.status, record.http_status, record.amount_nano) == ("client_gone", 499, 0)


def test_a_client_that_leaves_while_it_sends_makes_no_call(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    before = practice.stats()["requests"]
    with RawClient(world.relay.port) as client:
        head = {**tenant.auth, "content-type": "application/json", "content-length": "1000"}
        client.request("POST", "/v1/chat/completions", head, tenant.body())
    assert tenant.ask().status == 200
    assert len(tenant.check_books(1)) == 1
    assert practice.stats()["requests"] == before + 1


def test_many_clients_that_leave_at_once_leave_nothing_behind(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    clients = [tenant.start("@practice gap_ms=30,tokens=300@") for _ in range(40)]
    for client in clients[::2]:
        client.read_head()
        client.read_event()
    practice.wait_for(open=40)
    left_at = perf_counter()
    for number, client in enumerate(clients):
        LEAVING["resets" if number % 3 else "closes"](client)
    practice.wait_for(open=0)
    assert perf_counter() - left_at < 1.0
    assert {record.status for record in tenant.check_books(40)} == {"client_gone"}


def test_leaving_at_any_moment_leaves_nothing_behind(world: World, practice: PracticeProcess) -> None:
    """Hang-ups fall on every await of the walk, from the head of the request to the end of the answer."""
    tenant = world.tenant(practice.url, "http://127.0.0.1:1/v1", practice.url)
    rng = random.Random(11)
    delays = [rng.uniform(0, 0.03) for _ in range(150)]

    def leave(number: int) -> Answer | None:
        text = "@practice tokens=8,gap_ms=2@" if number % 2 else "@practice status=500@"
        with tenant.start(text, stream=True if number % 3 else None) as client:
            client.socket.settimeout(delays[number])
            try:
                return client.read_answer()
            except TimeoutError:
                LEAVING["resets" if number % 5 else "closes"](client)
                return None

    answers = at_once({str(number): partial(leave, number) for number in range(len(delays))})
    assert not [answer for answer in answers.values() if isinstance(answer, BaseException)]
    practice.wait_for(open=0)
    eventually(lambda: tenant.use()[1:] == (0, 0))
    assert tenant.ask().status == 200
    known = {answer.call_id for answer in answers.values() if answer is not None}
    eventually(lambda: known <= {str(record.id) for record in tenant.records()})
    records = tenant.check_books()
    assert {record.status for record in records} <= {"ok", "client_gone", "upstream_error"}
    assert "Traceback" not in world.relay.log


def test_an_answer_in_full_leaves_its_connection_for_the_next_call(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    tenant.stream()
    before = practice.stats()["connections"]
    for _ in range(5):
        assert tenant.stream().is_done
        assert tenant.ask().status == 200
    # The counter's own connections: one for each look at it.
    assert practice.stats()["connections"] == before + 1
