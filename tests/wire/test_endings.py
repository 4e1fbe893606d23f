"""The endings of a call, for streams and plain answers: what the client gets, what is recorded, who pays."""

import signal
import threading
from collections.abc import Callable

import pytest

from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.wire.world import Tenant, World, eventually

# Input and output at the default price: 2 and 10 per million, in nano-units a token.
INPUT, OUTPUT = 2_000, 10_000


def test_a_complete_stream_is_charged_for_what_was_reported(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("Hello", stream_options={"include_usage": True})
    assert (answer.status, answer.is_done) == (200, True)
    usage = answer.chunks[-1]["usage"]
    record = tenant.record(answer)
    assert (record.status, record.http_status, record.error_kind) == ("ok", 200, "")
    assert (record.end_reason, record.usage_source, record.stream) == ("stop", "reported", True)
    assert (record.input_tokens, record.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert record.amount_nano == INPUT * usage["prompt_tokens"] + OUTPUT * usage["completion_tokens"]
    assert [attempt["result"] for attempt in record.attempts] == ["ok"]
    assert record.ttft_ms is not None
    tenant.check_books(1)


def test_a_complete_plain_answer_is_charged_for_what_was_reported(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.ask("Hello")
    usage = answer.json["usage"]
    record = tenant.record(answer)
    assert (record.status, record.http_status, record.stream) == ("ok", 200, False)
    assert (record.end_reason, record.usage_source) == ("stop", "reported")
    assert record.amount_nano == INPUT * usage["prompt_tokens"] + OUTPUT * usage["completion_tokens"]
    tenant.check_books(1)


def test_a_stream_whose_end_comes_with_its_content_has_both_marks(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    record = tenant.record(tenant.stream("@practice tokens=1@"))
    assert record.ttft_ms is not None
    assert record.ttfb_ms is not None


@pytest.mark.parametrize("stream", [True, None])
def test_an_error_before_content_costs_nothing(
    world: World, practice: PracticeProcess, stream: bool | None
) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("@practice status=500@", stream=stream)
    assert (answer.status, answer.headers["content-type"]) == (502, "application/json")
    assert (answer.error["type"], answer.error["code"]) == ("server_error", "upstream_error")
    record = tenant.record(answer)
    assert (record.status, record.http_status, record.error_kind) == ("upstream_error", 502, "upstream_broke")
    assert (record.amount_nano, record.ttft_ms) == (0, None)
    assert [(a["result"], a["http_status"]) for a in record.attempts] == [("upstream_broke", 500)]
    tenant.check_books(1)


def test_an_error_after_content_is_charged_for_what_was_delivered(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("@practice error_event=5,tokens=20,usage=none@")
    assert (answer.status, answer.is_complete, answer.is_done) == (200, True, False)
    assert answer.error["type"] == "server_error"
    assert sum(bool(c.get("choices") and c["choices"][0]["delta"].get("content")) for c in answer.chunks) == 5
    record = tenant.record(answer)
    assert (record.status, record.http_status) == ("upstream_error", 200)
    assert (record.usage_source, record.output_tokens) == ("estimated", 5)
    assert record.amount_nano == INPUT * record.input_tokens + OUTPUT * 5
    tenant.check_books(1)


@pytest.mark.parametrize("stream", [True, None])
def test_a_client_that_leaves_before_content_pays_nothing(
    world: World, practice: PracticeProcess, stream: bool | None
) -> None:
    tenant = world.tenant(practice.url)
    open_before = practice.stats()["open"]
    with tenant.start("@practice ttft_ms=60000@", stream=stream):
        practice.wait_for(open=open_before + 1)
        eventually(lambda: tenant.use()[2] == 1)
    practice.wait_for(open=open_before)
    (record,) = tenant.check_books(1)
    assert (record.status, record.http_status, record.amount_nano) == ("client_gone", 499, 0)
    assert (record.usage_source, record.ttft_ms, record.ttfb_ms) == ("", None, None)
    assert [attempt["result"] for attempt in record.attempts] == ["client_gone"]


def test_a_client_that_leaves_after_content_pays_for_what_was_counted(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    open_before = practice.stats()["open"]
    with tenant.start("@practice tokens=500,gap_ms=20@") as client:
        answer = client.read_head()
        for _ in range(4):
            client.read_event()
    practice.wait_for(open=open_before)
    record = tenant.record(answer)
    assert (record.status, record.http_status, record.usage_source) == ("client_gone", 200, "estimated")
    assert 3 <= record.output_tokens < 100
    assert record.amount_nano == INPUT * record.input_tokens + OUTPUT * record.output_tokens
    assert record.input_tokens > 0
    tenant.check_books(1)


def test_a_client_that_leaves_pays_for_reported_usage_where_there_is_some(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    with tenant.start("@practice tokens=500,gap_ms=20,usage_every@") as client:
        answer = client.read_head()
        for _ in range(4):
            client.read_event()
    record = tenant.record(answer)
    assert (record.status, record.usage_source) == ("client_gone", "partial")
    assert 3 <= record.output_tokens < 100
    tenant.check_books(1)


def test_a_client_that_closes_behind_the_end_is_no_client_that_left(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    with tenant.start() as client:
        answer = client.read_head()
        while client.read_event() != b"data: [DONE]\n\n":
            pass
        client.reset()
    assert tenant.record(answer).status == "ok"
    tenant.check_books(1)


def test_a_client_that_leaves_in_the_middle_of_a_plain_answer_pays_for_it(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    with tenant.start("@practice tokens=400,pad=4000@", stream=None, receive_buffer=4096) as client:
        answer = client.read_head()
        client.reset()
    record = tenant.record(answer)
    assert (record.status, record.usage_source) == ("ok", "reported")
    tenant.check_books(1)


# SIGTERM.


def in_thread(call: Callable[[], Answer]) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers


def ask_twice(tenant: Tenant, text: str) -> tuple[list[threading.Thread], list[list[Answer]]]:
    """A stream and a plain call that are under way when this returns."""
    started = [in_thread(lambda: tenant.stream(text)), in_thread(lambda: tenant.ask(text))]
    eventually(lambda: tenant.use()[2] == 2)
    return [thread for thread, _ in started], [answers for _, answers in started]


def stop(world: World) -> None:
    """The server raises the signal again once it is done, so that its parent sees why it ended."""
    assert world.relay.stop(signal.SIGTERM) == [-signal.SIGTERM]


def test_calls_under_way_may_end_within_the_drain(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay(DRAIN_S="20")
    tenant = world.tenant(practice.url)
    threads, answers = ask_twice(tenant, "@practice tokens=30,gap_ms=40@")
    stop(world)
    for thread in threads:
        thread.join(10)
    (stream,), (plain,) = answers
    assert stream.is_done
    assert plain.status == 200
    assert {record.status for record in tenant.check_books(2)} == {"ok"}


def test_calls_that_outlast_the_drain_are_told_and_cost_nothing(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay(DRAIN_S="0.3")
    tenant = world.tenant(practice.url)
    open_before = practice.stats()["open"]
    threads, answers = ask_twice(tenant, "@practice tokens=3000,gap_ms=20@")
    stop(world)
    for thread in threads:
        thread.join(10)
    (stream,), (plain,) = answers
    assert (stream.is_complete, stream.is_done) == (True, False)
    assert stream.error["code"] == "shutting_down"
    assert (plain.status, plain.error["code"]) == (503, "shutting_down")
    practice.wait_for(open=open_before)
    records = tenant.check_books(2)
    assert {record.status for record in records} == {"interrupted"}
    assert {record.amount_nano for record in records} == {0}
