"""Limits under concurrency: exactly as many calls pass as the money is for, and the books fit afterwards."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest
from django.db import transaction

from accounts import scope
from accounts.models import Key, Organization
from tests.fakes.http_server import Peer, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.fakes.tcp_proxy import running_proxy
from tests.wire.world import PRICE, Tenant, World, at_once, eventually, nano

CALLS = 20
# A ceiling of 1,000 tokens at 10 per million, with input for nothing: a hold is exactly 0.01.
OUTPUT_ONLY = {"currency": "USD", "input": "0", "output": "10"}
HOLD = nano("0.01")
SAID = http_answer(
    b'{"id":"a","model":"x","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":400,"total_tokens":409}}',
    headers=b"content-type: application/json\r\n",
)


@contextmanager
def holding_upstream() -> Iterator[tuple[str, threading.Event]]:
    """An upstream that answers nobody until it is released."""
    release = threading.Event()

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            while not release.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.005)
            await peer.send(SAID)

    with in_thread(script) as server:
        yield f"{server.url}/v1", release


def content_count(answer: Answer) -> int:
    deltas = [c["delta"] for chunk in answer.chunks for c in chunk.get("choices", ())]
    return sum(bool(delta.get("content")) for delta in deltas)


def rush(tenant: Tenant, release: threading.Event, *, passes: int) -> list[Answer]:
    """Twenty calls at once; the upstream answers when all but those that pass have been refused."""
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(tenant.ask("Hello", max_tokens=1000)))
        for _ in range(CALLS)
    ]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(answers) == CALLS - passes)
        assert tenant.use()[1:] == tenant.use(tenant.key_level)[1:] == (passes * HOLD, passes)
    finally:
        release.set()
        for thread in threads:
            thread.join(20)
    return answers


def check_rush(tenant: Tenant, answers: list[Answer], *, passes: int) -> list[Answer]:
    """Those that were refused."""
    assert sorted(answer.status for answer in answers) == [200] * passes + [429] * (CALLS - passes)
    records = tenant.check_books(CALLS)
    assert sorted(record.status for record in records) == ["ok"] * passes + ["refused"] * (CALLS - passes)
    assert {record.amount_nano for record in records if record.status == "ok"} == {400 * 10_000}
    refused = [answer for answer in answers if answer.status == 429]
    for answer in refused:
        assert (answer.error["type"], answer.error["code"]) == ("insufficient_quota", "insufficient_quota")
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers
    return refused


@pytest.mark.parametrize(
    ("level", "made"),
    [
        ("key", {"key": {"budget_nano": 3 * HOLD}}),
        ("organization", {"organization": {"budget_nano": 3 * HOLD}}),
    ],
)
def test_a_budget_of_three_holds_lets_three_of_twenty_through(
    world: World, level: str, made: dict[str, dict[str, int]]
) -> None:
    with holding_upstream() as (url, release):
        tenant = world.tenant(url, price=OUTPUT_ONLY, **made)
        for answer in check_rush(tenant, rush(tenant, release, passes=3), passes=3):
            message = answer.error["message"]
            assert f"budget of the {level}" in message
            assert "0.03 USD" in message
            assert "does not reset" in message
            assert level == "organization" or f"key '{tenant.key.name}'" in message


def test_a_balance_of_three_holds_lets_three_of_twenty_through(world: World) -> None:
    with holding_upstream() as (url, release):
        tenant = world.tenant(url, price=OUTPUT_ONLY, balance="0.0399")
        for answer in check_rush(tenant, rush(tenant, release, passes=3), passes=3):
            assert "balance of the organization" in answer.error["message"]
            assert "0.0099 USD left" in answer.error["message"]
            assert "top-up" in answer.error["message"]


def test_concurrency_counts_open_calls_only(world: World) -> None:
    with holding_upstream() as (url, release):
        tenant = world.tenant(url, price=OUTPUT_ONLY, key={"concurrency": 4})
        answers = rush(tenant, release, passes=4)
        assert sorted(answer.status for answer in answers) == [200] * 4 + [429] * 16
        refused = next(answer for answer in answers if answer.status == 429)
        assert (refused.error["type"], refused.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        assert "x-should-retry" not in refused.headers
        assert "4 calls open at once" in refused.error["message"]
        assert tenant.ask("Hello", max_tokens=1000).status == 200
        tenant.check_books(21)


@pytest.mark.parametrize("level", ["key", "organization"])
def test_calls_a_minute(world: World, practice: PracticeProcess, level: str) -> None:
    tenant = world.tenant(practice.url, **{level: {"rpm": 5}})  # type: ignore[arg-type]
    answers = at_once({str(number): partial(tenant.ask, "Hello") for number in range(12)})
    assert sorted(answer.status for answer in answers.values()) == [200] * 5 + [429] * 7
    refused = next(answer for answer in answers.values() if answer.status == 429)
    assert (refused.error["type"], refused.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert "5 calls a minute" in refused.error["message"]
    assert level in refused.error["message"]
    tenant.check_books(12)


def test_what_is_left_is_what_was_not_spent(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price=OUTPUT_ONLY, balance="0.02")
    assert tenant.ask("@practice tokens=600@", max_tokens=1000).status == 200
    assert tenant.ask("@practice tokens=600@", max_tokens=1000).status == 200
    assert tenant.ask("@practice tokens=600@", max_tokens=1000).status == 429
    assert tenant.ask("@practice tokens=600@", max_tokens=800).status == 200
    tenant.check_books(4)
    assert tenant.balance_nano() == nano("0.02") - 3 * 600 * 10_000


def test_a_top_up_lets_calls_through_within_a_second(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price=OUTPUT_ONLY, balance="0.005")
    assert tenant.ask(max_tokens=1000).status == 429
    world.top_up(tenant.organization, "1")
    eventually(lambda: tenant.ask(max_tokens=1000).status == 200, within_s=1.0, every_s=0.05)


def test_a_raised_budget_lets_calls_through_within_a_second(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price=OUTPUT_ONLY, key={"budget_nano": 1})
    assert tenant.ask(max_tokens=1000).status == 429
    with scope.site("test"):
        Key.objects.filter(pk=tenant.key.pk).update(budget_nano=nano("1"))
    eventually(lambda: tenant.ask(max_tokens=1000).status == 200, within_s=1.0, every_s=0.05)


def test_a_free_model_needs_no_money(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(
        practice.url, price={**PRICE, "input": "0", "output": "0", "discount": "0"}, balance="0"
    )
    assert tenant.ask().status == 200
    (record,) = tenant.check_books(1)
    assert (record.amount_nano, record.status) == (0, "ok")


def test_an_answer_that_outgrows_its_hold_takes_more(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price=OUTPUT_ONLY, model={"hold_output_tokens": 100})
    assert tenant.stream("@practice tokens=9000@").is_done
    (record,) = tenant.check_books(1)
    assert (record.status, record.output_tokens) == ("ok", 9000)


def test_an_answer_that_outgrows_its_hold_and_the_budget_ends(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(
        practice.url, price=OUTPUT_ONLY, key={"budget_nano": nano("0.045")}, model={"hold_output_tokens": 100}
    )
    answer = tenant.stream("@practice tokens=9000@")
    assert (answer.status, answer.is_complete, answer.is_done) == (200, True, False)
    assert answer.error["code"] == "insufficient_quota"
    practice.wait_for(open=0)
    (record,) = tenant.check_books(1)
    assert (record.status, record.error_kind, record.usage_source) == ("refused", "budget_spent", "estimated")
    assert record.output_tokens == content_count(answer) > 100
    assert record.amount_nano == 10_000 * record.output_tokens <= nano("0.045")


def test_the_dearest_input_class_is_held(world: World, practice: PracticeProcess) -> None:
    price = {"currency": "USD", "input": "1", "cache_write_1h": "100", "output": "0"}
    tenant = world.tenant(practice.url, price=price, key={"budget_nano": nano("0.01")})
    assert tenant.ask("x" * 1000).status == 429


def test_what_the_counters_lost_comes_back_from_the_records(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price=OUTPUT_ONLY, key={"budget_nano": nano("0.02")})
    assert tenant.ask("@practice tokens=900@", max_tokens=1000).status == 200
    tenant.check_books(1)
    for name in world.store.scan_iter(f"{{org:{tenant.organization.pk}}}*"):
        world.store.delete(name)
    assert tenant.ask("@practice tokens=900@", max_tokens=1500).status == 429
    assert tenant.ask("@practice tokens=900@", max_tokens=1000).status == 200
    tenant.check_books(3)


def test_without_the_store_calls_are_refused_and_come_back(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    parts = urlsplit(os.environ["REDIS_URL"])
    assert parts.hostname is not None
    assert parts.port is not None
    with running_proxy((parts.hostname, parts.port)) as proxy:
        url = f"redis://:{parts.password}@127.0.0.1:{proxy.port}{parts.path}"
        world = make_relay(LIMITS_REDIS_URL=url)
        tenant = world.tenant(practice.url)
        asked: list[Answer] = []

        def ask() -> Answer:
            asked.append(tenant.ask())
            return asked[-1]

        with tenant.start("@practice gap_ms=20,tokens=30@") as client:
            open_answer = client.read_head()
            client.read_event()
            proxy.cut()
            answer = eventually(lambda: found if (found := ask()).status != 200 else None)
            assert (answer.status, answer.error["code"]) == (503, "limits_unavailable")
            assert int(answer.headers["retry-after"]) >= 1
            assert not world.relay.is_ready()
            # A call that had its hold goes on, and is settled when the store is back.
            assert client.read_rest(open_answer).is_done
        proxy.restore()
        eventually(lambda: ask().status == 200)
        records = tenant.check_books(len(asked) + 1)
        assert {record.status for record in records} == {"ok", "refused"}


def test_an_organization_that_is_switched_off_is_refused_within_a_second(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    assert tenant.ask().status == 200
    with transaction.atomic(), scope.site("test"):
        Organization.objects.filter(pk=tenant.organization.pk).update(enabled=False)
    answer = eventually(lambda: found if (found := tenant.ask()).status != 200 else None, within_s=1.0)
    assert (answer.status, answer.error["code"]) == (403, "organization_disabled")
