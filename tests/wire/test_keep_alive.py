"""While an upstream is silent a stream gets its headers and comments; that commits to nothing.

The relay here beats every 0.4 s; the product's own beat is checked by its default.
"""

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from time import perf_counter

import pytest

from relay.runtime import RelayConfig
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.relay_process import RelayProcess
from tests.wire.world import World, at_once

BEAT_S = 0.4
COMMENT = b": keep-alive\n\n"


@pytest.fixture(scope="module")
def impatient(relay_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    command = (str(Path(__file__).with_name("tuned_relay.py")), f"beat_s={BEAT_S}")
    process = RelayProcess(tmp_path_factory.mktemp("impatient"), relay_env, command=command)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def world(impatient: RelayProcess, django_db_blocker) -> Iterator[World]:
    with django_db_blocker.unblock():
        made = World(impatient)
        yield made
        made.close()


def test_the_product_waits_ten_seconds() -> None:
    assert {field.name: field.default for field in fields(RelayConfig)}["beat_s"] == 10.0


def test_a_silent_upstream_gives_headers_and_comments_until_it_speaks(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    began = perf_counter()
    with tenant.start("@practice ttft_ms=1500@") as client:
        answer = client.read_head()
        assert BEAT_S - 0.05 < perf_counter() - began < BEAT_S + 0.4
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert client.read_event() == COMMENT
        assert client.read_event() == COMMENT
        assert 2 * BEAT_S - 0.05 < perf_counter() - began < 2 * BEAT_S + 0.4
        client.read_rest(answer)
    assert answer.is_done
    record = tenant.record(answer)
    assert record.status == "ok"
    assert record.ttfb_ms == pytest.approx(BEAT_S * 1000, abs=300)
    assert record.ttft_ms == pytest.approx(1500, abs=400)
    tenant.check_books(1)


FAILURES = {
    "stall_before_ms=700,error_event": ("upstream_error", "upstream_broke"),
    "headers_delay_ms=700,status=500": ("upstream_error", "upstream_broke"),
    "headers_delay_ms=700,status=401": ("server_is_overloaded", "upstream_credential"),
    "headers_delay_ms=700,html": ("upstream_error", "upstream_garbage"),
    "ttft_ms=700,role_only": ("upstream_error", "upstream_cut"),
    "ttft_ms=60000": ("upstream_timeout", "upstream_timeout"),
    "headers_delay_ms=700,status=400,error_code=bad": ("bad", "upstream_rejected"),
}


def test_a_failure_behind_the_comments_is_an_event_of_the_stream(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url, timeouts={"first_token_s": 1.2})
    answers = at_once({name: partial(tenant.stream, f"@practice {name}@") for name in FAILURES})
    records = {str(record.id): record for record in tenant.check_books(len(FAILURES))}
    for name, answer in answers.items():
        code, kind = FAILURES[name]
        assert answer.body.startswith(COMMENT)
        assert (answer.status, answer.is_complete, answer.is_done) == (200, True, False)
        assert set(answer.error) == {"message", "type", "param", "code"}
        assert answer.error["code"] == code
        assert len(answer.events) == 1
        record = records[answer.call_id]
        assert (record.error_kind, record.http_status) == (kind, 200)
        assert (record.amount_nano, record.ttft_ms) == (0, None)
        assert record.ttfb_ms is not None


def test_comments_commit_to_nothing(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(
        "http://127.0.0.1:1/v1", practice.url, practice.url, timeouts={"first_token_s": 1.0}
    )
    # The first cannot be reached, the second is silent, the third is the same one, and silent too.
    answer = tenant.stream("@practice ttft_ms=60000@")
    assert answer.body.startswith(COMMENT)
    assert answer.error["code"] == "upstream_timeout"
    (record,) = tenant.check_books(1)
    assert [attempt["result"] for attempt in record.attempts] == [
        "upstream_unreachable", "upstream_timeout", "upstream_timeout",
    ]  # fmt: skip


def test_a_stall_in_the_answer_is_filled_with_comments(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("@practice tokens=6,stall_after=3,stall_ms=1400@")
    assert answer.is_done
    assert 2 <= answer.body.count(COMMENT) <= 4
    said = [c["delta"].get("content") for chunk in answer.chunks for c in chunk["choices"]]
    assert sum(bool(text) for text in said) == 6
    assert tenant.record(answer).status == "ok"


def test_an_answer_that_flows_gets_no_comments(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("@practice tokens=60,gap_ms=25@")
    assert answer.is_done
    assert COMMENT not in answer.body


def test_a_plain_call_waits_for_its_status(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.ask("@practice headers_delay_ms=1000,status=500@")
    assert (answer.status, answer.headers["content-type"]) == (502, "application/json")


def test_a_client_that_leaves_behind_comments_pays_nothing(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    with tenant.start("@practice ttft_ms=60000@") as client:
        answer = client.read_head()
        assert client.read_event() == COMMENT
    record = tenant.record(answer)
    assert (record.status, record.http_status, record.amount_nano) == ("client_gone", 200, 0)
    tenant.check_books(1)
