"""Holds, limits, revocations and prices are the same on every process, to the last call."""

import time
from collections.abc import Callable
from functools import partial

import pytest
from django.utils import timezone

from accounts import scope
from accounts.models import Key, Organization
from billing.models import Price
from relay.models import Model
from tests.fakes.practice_process import PracticeProcess
from tests.wire.gate import CEILING, HOLD, OUTPUT_ONLY, MakeRush, gate
from tests.wire.siblings import Siblings
from tests.wire.world import Tenant, at_once, eventually

SOON_S = 1.0
CALLS = 200
PASS = 10


def test_a_budget_of_ten_holds_lets_ten_of_two_hundred_through(siblings: Siblings, rush: MakeRush) -> None:
    with gate() as upstream:
        tenant = siblings.worlds[0].tenant(upstream.url, price=OUTPUT_ONLY, key={"budget_nano": PASS * HOLD})
        calls = rush(siblings.known_to_all(tenant), CALLS)
        calls.take(PASS, within_s=60)
        eventually(lambda: upstream.waiting == PASS)
        assert tenant.use() == tenant.use(tenant.key_level) == (0, PASS * HOLD, PASS)
        upstream.open()
        calls.take(0)
    assert (calls.count(200), calls.count(429), calls.cut) == (PASS, CALLS - PASS, 0)
    for answer in calls.answers:
        if answer.status == 429:
            assert (answer.error["type"], answer.error["code"]) == (
                "insufficient_quota",
                "insufficient_quota",
            )
            assert "budget of the key" in answer.error["message"]
    records = tenant.check_books(CALLS)
    assert sum(record.status == "ok" for record in records) == PASS
    assert tenant.use() == (PASS * HOLD, 0, 0)


def test_of_two_hundred_calls_never_more_than_ten_pass_though_a_process_is_killed(
    siblings: Siblings, rush: MakeRush
) -> None:
    """What the killed process held is free again for others, and is not given out before."""
    with gate() as upstream:
        tenant = siblings.worlds[0].tenant(upstream.url, price=OUTPUT_ONLY, key={"budget_nano": PASS * HOLD})
        killed, living = siblings.known_to_all(tenant)
        calls = rush([killed], PASS // 2)
        eventually(lambda: upstream.waiting == PASS // 2)
        calls.send([living, killed], CALLS // 2 - PASS // 2)
        calls.take(PASS, within_s=60)
        eventually(lambda: upstream.waiting == PASS)
        killed.world.relay.kill()
        calls.send([living], CALLS // 4)

        def is_given_back() -> bool:
            calls.take_ready(0.05)
            held, open_calls = tenant.use()[1:]
            assert held == open_calls * HOLD <= PASS * HOLD
            return any(record.status == "interrupted" for record in tenant.records())

        eventually(is_given_back, within_s=20)
        calls.send([living], CALLS // 4)
        # Every call has been decided when no more are open than have a hold.
        calls.take(PASS, within_s=60)
        assert tenant.use() == (0, PASS * HOLD, PASS)
        upstream.open()
        calls.take(0)
    assert calls.count(200) == PASS
    assert calls.cut > 0
    assert calls.count(429) == CALLS - PASS - calls.cut
    records = tenant.check_books()
    statuses = [record.status for record in records]
    assert (statuses.count("ok"), statuses.count("interrupted")) == (PASS, calls.cut)
    assert tenant.use() == (PASS * HOLD, 0, 0)


@pytest.mark.parametrize("level", ["key", "organization"])
def test_calls_a_minute_are_counted_together(
    siblings: Siblings, practice: PracticeProcess, level: str
) -> None:
    tenant = siblings.worlds[0].tenant(practice.url, **{level: {"rpm": 7}})  # type: ignore[arg-type]
    callers = siblings.known_to_all(tenant)
    answers = at_once({str(number): partial(callers[number % 2].ask) for number in range(20)})
    assert sorted(answer.status for answer in answers.values()) == [200] * 7 + [429] * 13
    tenant.check_books(20)


def test_open_calls_are_counted_together(siblings: Siblings, rush: MakeRush) -> None:
    with gate() as upstream:
        tenant = siblings.worlds[0].tenant(upstream.url, price=OUTPUT_ONLY, key={"concurrency": 5})
        callers = siblings.known_to_all(tenant)
        calls = rush(callers, 30)
        calls.take(5)
        assert calls.count(429) == 25
        eventually(lambda: upstream.waiting == 5)
        upstream.open()
        calls.take(0)
    assert calls.count(200) == 5
    tenant.check_books(30)


def revoke(tenant: Tenant) -> None:
    with scope.site("test"):
        Key.objects.filter(pk=tenant.key.pk).update(revoked_at=timezone.now())


def switch_off(tenant: Tenant) -> None:
    with scope.site("test"):
        Organization.objects.filter(pk=tenant.organization.pk).update(enabled=False)


def take_off_offer(tenant: Tenant) -> None:
    Model.objects.filter(pk=tenant.model.pk).update(enabled=False)


@pytest.mark.parametrize(("change", "status"), [(revoke, 401), (switch_off, 403), (take_off_offer, 404)])
def test_what_is_taken_away_is_refused_by_all_within_a_second(
    siblings: Siblings, practice: PracticeProcess, change: Callable[[Tenant], None], status: int
) -> None:
    callers = siblings.known_to_all(siblings.worlds[0].tenant(practice.url))
    assert [caller.ask().status for caller in callers] == [200, 200]
    change(callers[0])
    deadline = time.monotonic() + SOON_S
    while [caller.ask().status for caller in callers] != [status, status]:
        assert time.monotonic() < deadline
    # And no process falls back to what it knew before.
    assert {caller.ask().status for caller in callers * 5} == {status}


def test_a_new_price_is_charged_by_all_within_a_second(siblings: Siblings, practice: PracticeProcess) -> None:
    tenant = siblings.worlds[0].tenant(practice.url, price=OUTPUT_ONLY)
    callers = siblings.known_to_all(tenant)
    Price.objects.create(model_name=tenant.model.name, currency="USD", input="0", output="30")

    def charged() -> set[int]:
        answers = [caller.ask("@practice tokens=1@", max_tokens=CEILING) for caller in callers]
        return {tenant.record(answer).amount_nano for answer in answers}

    eventually(lambda: charged() == {30_000}, within_s=SOON_S + 1.0)
    tenant.check_books()
