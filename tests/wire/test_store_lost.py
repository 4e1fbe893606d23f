"""The limit store is lost: its counters come back from records, journals and processes, and no money is spent twice."""

from collections.abc import Sequence

import pytest

from tests.fakes.practice_process import PracticeProcess
from tests.wire.gate import CEILING, HOLD, OUTPUT_ONLY, WHOLE, MakeRush, Rush, gate
from tests.wire.siblings import Siblings
from tests.wire.world import Tenant, eventually

WAYS = ["emptied", "killed"]


def refused_or_away(calls: Rush) -> None:
    """Nobody was let through: refused for want of money, or because the counters were not known."""
    assert {answer.status for answer in calls.answers} <= {429, 503}
    assert {answer.error["code"] for answer in calls.answers} <= {"insufficient_quota", "limits_unavailable"}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_held_by_open_calls_is_not_given_out_again(
    siblings: Siblings, rush: MakeRush, way: str
) -> None:
    with gate() as upstream:
        tenant = siblings.worlds[0].tenant(upstream.url, price=OUTPUT_ONLY, key={"budget_nano": 10 * HOLD})
        callers = siblings.known_to_all(tenant)
        held = rush(callers, 10)
        eventually(lambda: upstream.waiting == 10)
        assert tenant.use() == (0, 10 * HOLD, 10)
        siblings.lose_store(way)
        for _ in range(3):
            calls = rush(callers, 10)
            calls.take(0)
            refused_or_away(calls)
        # Without a hand: the counters are there again.
        eventually(lambda: tenant.use() == (0, 10 * HOLD, 10))
        late = rush(callers, 4)
        late.take(0)
        assert late.count(429) == 4
        assert upstream.waiting == 10
        upstream.open()
        held.take(0)
    assert held.count(200) == 10
    tenant.check_books(44)
    assert tenant.use()[0] == 10 * HOLD


@pytest.mark.parametrize("way", WAYS)
def test_streams_that_are_open_end_well_and_are_charged_once(
    siblings: Siblings, practice: PracticeProcess, way: str
) -> None:
    callers = siblings.known_to_all(siblings.worlds[0].tenant(practice.url))
    clients = [callers[number % 2].start("@practice tokens=60,gap_ms=30@") for number in range(8)]
    answers = [client.read_head() for client in clients]
    siblings.lose_store(way)
    others = [
        eventually(lambda c=caller: found if (found := c.ask()).status == 200 else None) for caller in callers
    ]
    for client, answer in zip(clients, answers, strict=True):
        assert client.read_rest(answer).is_done
        client.close()
    records = {str(record.id): record for record in callers[0].check_books()}
    assert {records[answer.call_id].status for answer in (*answers, *others)} == {"ok"}


def spend(caller: Tenant, calls: int) -> None:
    """So many calls that cost their whole hold."""
    for _ in range(calls):
        assert caller.ask(WHOLE, max_tokens=CEILING).status == 200


def spend_the_rest(rush: MakeRush, callers: Sequence[Tenant]) -> int:
    """Twenty calls at once, again and again until none is refused for lost counters; how many passed."""
    passed = 0
    while True:
        calls = rush(callers, 20)
        calls.take(0)
        passed += calls.count(200)
        if not calls.count(503):
            assert calls.count(200) + calls.count(429) == 20
            return passed


@pytest.mark.parametrize("way", WAYS)
def test_what_was_just_spent_is_not_given_out_again(
    siblings: Siblings, rush: MakeRush, practice: PracticeProcess, way: str
) -> None:
    """The last records are still on their way when both processes begin to bring the counters back."""
    tenant = siblings.worlds[0].tenant(practice.url, price=OUTPUT_ONLY, key={"budget_nano": 10 * HOLD})
    callers = siblings.known_to_all(tenant)
    for caller in callers:
        spend(caller, 3)
    siblings.lose_store(way)
    assert spend_the_rest(rush, callers) == 4
    tenant.check_books()
    assert tenant.use()[0] == 10 * HOLD


@pytest.mark.parametrize("way", WAYS)
def test_what_a_killed_process_had_journalled_is_not_given_out_again(
    siblings: Siblings, rush: MakeRush, practice: PracticeProcess, way: str
) -> None:
    """Its records were not shipped when it was killed, and the store is lost before anybody took its journal over."""
    tenant = siblings.worlds[0].tenant(practice.url, price=OUTPUT_ONLY, key={"budget_nano": 10 * HOLD})
    killed, living = siblings.known_to_all(tenant)
    spend(killed, 1)
    tenant.records(1)
    siblings.database.cut()
    spend(killed, 5)
    assert len(tenant.records()) == 1
    killed.world.relay.kill()
    siblings.lose_store(way)
    assert spend_the_rest(rush, [living]) == 4
    tenant.check_books()
    assert tenant.use()[0] == 10 * HOLD


def test_a_process_that_was_cut_off_from_the_database_is_heard_when_it_is_back(
    siblings: Siblings, rush: MakeRush, practice: PracticeProcess
) -> None:
    """Nobody knows what it has spent until then; afterwards everybody does."""
    tenant = siblings.worlds[0].tenant(practice.url, price=OUTPUT_ONLY, key={"budget_nano": 10 * HOLD})
    away, there = siblings.known_to_all(tenant)
    spend(away, 1)
    tenant.records(1)
    siblings.database.cut()
    spend(away, 2)
    siblings.lose_store("emptied")
    eventually(lambda: there.ask(WHOLE, max_tokens=CEILING).status == 200)
    eventually(lambda: tenant.use() == (2 * HOLD, 0, 0))
    siblings.database.restore()
    eventually(lambda: tenant.use() == (4 * HOLD, 0, 0), within_s=15)
    assert spend_the_rest(rush, [away, there]) == 6
    tenant.check_books()


def test_a_store_that_is_lost_again_and_again(
    siblings: Siblings, rush: MakeRush, practice: PracticeProcess
) -> None:
    tenant = siblings.worlds[0].tenant(practice.url, price=OUTPUT_ONLY, key={"budget_nano": 10 * HOLD})
    callers = siblings.known_to_all(tenant)
    passed = 0
    for _ in range(12):
        calls = rush(callers, 3)
        siblings.lose_store("emptied")
        calls.take(0)
        passed += calls.count(200)
    passed += spend_the_rest(rush, callers)
    assert passed == 10
    tenant.check_books()


def test_without_the_database_lost_counters_refuse_everybody(
    siblings: Siblings, practice: PracticeProcess
) -> None:
    tenant = siblings.worlds[0].tenant(practice.url)
    assert tenant.ask().status == 200
    siblings.processes[1].kill()
    siblings.database.cut()
    assert tenant.ask().status == 200
    siblings.lose_store("emptied")
    answer = tenant.ask()
    assert (answer.status, answer.error["code"]) == (503, "limits_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    siblings.database.restore()
    eventually(lambda: tenant.ask().status == 200, within_s=15)
    records = tenant.check_books()
    assert sum(record.status == "ok" for record in records) == 3
