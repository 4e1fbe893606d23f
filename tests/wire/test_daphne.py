"""The same consumers on Daphne, the server of `runserver`: what it can do, and what it is known not to do.

The tests that are imported are those of the relay process on uvicorn, with another one behind the fixture `world`.
"""

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.fakes.http_server import Peer, chunk, in_thread
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.relay_process import RelayProcess
from tests.wire.test_back_pressure import END, EVENT, resident_bytes
from tests.wire.test_endings import (
    ask_twice,
    test_a_client_that_closes_behind_the_end_is_no_client_that_left,
    test_a_client_that_leaves_after_content_pays_for_what_was_counted,
    test_a_client_that_leaves_before_content_pays_nothing,
    test_a_client_that_leaves_in_the_middle_of_a_plain_answer_pays_for_it,
    test_a_complete_plain_answer_is_charged_for_what_was_reported,
    test_a_complete_stream_is_charged_for_what_was_reported,
    test_an_error_after_content_is_charged_for_what_was_delivered,
    test_an_error_before_content_costs_nothing,
)
from tests.wire.test_hang_up import (
    test_leaving_at_any_moment_leaves_nothing_behind,
    test_many_clients_that_leave_at_once_leave_nothing_behind,
    test_the_upstream_of_a_plain_call_is_closed_soon,
    test_the_upstream_of_a_stream_is_closed_soon,
)
from tests.wire.test_misbehaviour import (
    played,
    test_a_plain_answer_that_fails,
    test_a_stream_that_fails,
    test_an_upstreams_judgement_of_the_request_is_shown,
    test_every_call_has_one_record_and_nothing_is_held,
    test_no_upstream_is_left_talking,
)
from tests.wire.world import World, eventually

__all__ = [
    "played",
    "test_a_client_that_closes_behind_the_end_is_no_client_that_left",
    "test_a_client_that_leaves_after_content_pays_for_what_was_counted",
    "test_a_client_that_leaves_before_content_pays_nothing",
    "test_a_client_that_leaves_in_the_middle_of_a_plain_answer_pays_for_it",
    "test_a_complete_plain_answer_is_charged_for_what_was_reported",
    "test_a_complete_stream_is_charged_for_what_was_reported",
    "test_a_plain_answer_that_fails",
    "test_a_stream_that_fails",
    "test_an_error_after_content_is_charged_for_what_was_delivered",
    "test_an_error_before_content_costs_nothing",
    "test_an_upstreams_judgement_of_the_request_is_shown",
    "test_every_call_has_one_record_and_nothing_is_held",
    "test_leaving_at_any_moment_leaves_nothing_behind",
    "test_many_clients_that_leave_at_once_leave_nothing_behind",
    "test_no_upstream_is_left_talking",
    "test_the_upstream_of_a_plain_call_is_closed_soon",
    "test_the_upstream_of_a_stream_is_closed_soon",
]

DAPHNE = ("-m", "daphne", "-v", "0", "gateway.asgi:application")
# More than the sockets between an upstream and its client hold.
EVENTS = 4_000
TOTAL_BYTES = EVENTS * len(EVENT)


@pytest.fixture(scope="module")
def relay(relay_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    """Relay and console in one process, on Daphne."""
    process = RelayProcess(tmp_path_factory.mktemp("daphne"), relay_env, command=DAPHNE)
    try:
        process.start()
        yield process
    finally:
        process.close()


def test_a_stop_ends_calls_at_once_and_their_books_are_closed(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    """There is no drain. What was not shipped stays in the journal, for whoever starts next."""
    world = make_relay(command=DAPHNE)
    tenant = world.tenant(practice.url)
    open_before = practice.stats()["open"]
    threads, answers = ask_twice(tenant, "@practice tokens=3000,gap_ms=20@")
    world.relay.stop(signal.SIGTERM)
    for thread in threads:
        thread.join(20)
    (stream,), (plain,) = answers
    assert (stream.is_complete, stream.is_done) == (True, False)
    assert stream.error["code"] == "shutting_down"
    assert (plain.status, plain.error["code"]) == (503, "shutting_down")
    practice.wait_for(open=open_before)
    world.relay.start()
    assert tenant.ask().status == 200
    records = tenant.check_books(3)
    assert sorted(record.status for record in records) == ["interrupted", "interrupted", "ok"]
    assert {record.amount_nano for record in records[:2]} == {0}


def test_it_is_known_to_buffer_what_a_slow_client_does_not_take(world: World) -> None:
    """Daphne does not push back: all of the answer lies in its memory. Nothing of it is lost."""
    sent: list[int] = []

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(EVENTS):
            await peer.send(chunk(EVENT))
        sent.append(EVENTS)
        await peer.send(chunk(END), chunk(b""))
        await peer.gone()

    with in_thread(play) as server:
        tenant = world.tenant(f"{server.url}/v1", model={"hold_output_tokens": 100_000})
        before = resident_bytes(world.relay.pid)
        with tenant.start(receive_buffer=65_536) as client:
            answer = client.read_head()
            eventually(lambda: sent, within_s=30)
            record = tenant.record(answer)
            assert resident_bytes(world.relay.pid) - before > TOTAL_BYTES // 2
            assert client.read_rest(answer).is_done
    assert record.status == "ok"
    assert answer.body.count(b'"content":"') == EVENTS
    tenant.check_books(1)
