"""Holds on a real Valkey: taken, extended, renewed, settled, announced."""

import asyncio
from dataclasses import replace

import pytest
import redis

from relay.admission.permit import (
    GRANTED,
    HoldMissing,
    LevelLimits,
    LimitKind,
    OpenHold,
    PermitRequest,
    Permits,
    Refused,
    Use,
)
from relay.admission.store import Store
from relay.admission.sweep import sweep_holds
from tests.relay.admission.valkey_server import Clock

FREE = LevelLimits("o")
KEY = LevelLimits("k1")


def ask(organization_id: int, call_id: str, hold_nano: int, *levels: LevelLimits) -> PermitRequest:
    return PermitRequest(organization_id, call_id, hold_nano, lease_s=60, levels=levels or (FREE, KEY))


async def test_it_works(permits: Permits, acme: int) -> None:
    assert await permits.permit(ask(acme, "c1", 500)) == GRANTED
    assert await permits.read_use(acme, ["o", "k1", "k2"]) == {
        "o": Use(spent_nano=0, held_nano=500, open=1),
        "k1": Use(spent_nano=0, held_nano=500, open=1),
        "k2": Use(spent_nano=0, held_nano=0, open=0),
    }
    assert await permits.settle(acme, "c1", 420)
    assert (await permits.read_use(acme, ["k1"]))["k1"] == Use(spent_nano=420, held_nano=0, open=0)


async def test_holds_fill_an_allowance_to_the_last_unit(permits: Permits, acme: int) -> None:
    credit = LevelLimits("o", balance_nano=100)
    assert await permits.permit(ask(acme, "c1", 60, credit)) == GRANTED
    refused = Refused("o", LimitKind.BALANCE, left_nano=40, limit=100, reset_s=None)
    assert await permits.permit(ask(acme, "c2", 41, credit)) == refused
    assert await permits.permit(ask(acme, "c2", 40, credit)) == GRANTED
    assert await permits.permit(ask(acme, "c3", 1, credit)) == replace(refused, left_nano=0)


async def test_what_was_spent_is_gone_and_what_was_not_comes_back(permits: Permits, acme: int) -> None:
    budget = LevelLimits("o", budget_nano=100)
    await permits.permit(ask(acme, "c1", 90, budget))
    await permits.settle(acme, "c1", 30)
    refused = Refused("o", LimitKind.BUDGET, left_nano=70, limit=100, reset_s=None)
    assert await permits.permit(ask(acme, "c2", 71, budget)) == refused
    assert await permits.permit(ask(acme, "c2", 70, budget)) == GRANTED


async def test_a_refusal_at_one_level_takes_nothing_at_any(
    permits: Permits, acme: int, client: redis.Redis
) -> None:
    levels = (LevelLimits("o", budget_nano=10**6, rpm=5), LevelLimits("k1", budget_nano=10))
    refused = await permits.permit(ask(acme, "c1", 11, *levels))
    assert refused == Refused("k1", LimitKind.BUDGET, left_nano=10, limit=10, reset_s=None)
    nothing = Use(0, 0, 0)
    assert await permits.read_use(acme, ["o", "k1"]) == {"o": nothing, "k1": nothing}
    assert list(client.scan_iter(f"{{org:{acme}}}:*")) == [f"{{org:{acme}}}:use".encode()]


async def test_money_is_checked_before_places_and_the_outermost_level_first(
    permits: Permits, acme: int
) -> None:
    await permits.permit(ask(acme, "c0", 1, LevelLimits("o", rpm=9), LevelLimits("k1", rpm=9)))
    full = {"budget_nano": 0, "balance_nano": 0, "concurrency": 1, "rpm": 1}

    async def refusing(outer: dict[str, int], inner: dict[str, int]) -> tuple[str, LimitKind]:
        refused = await permits.permit(
            ask(acme, "c", 1, LevelLimits("o", **outer), LevelLimits("k1", **inner))
        )
        assert isinstance(refused, Refused)
        return refused.level, refused.kind

    assert await refusing(full, full) == ("o", LimitKind.BALANCE)
    full.pop("balance_nano")
    assert await refusing(full, full) == ("o", LimitKind.BUDGET)
    assert await refusing({"rpm": 1, "concurrency": 1}, full) == ("k1", LimitKind.BUDGET)
    assert await refusing({"rpm": 1, "concurrency": 1}, {"rpm": 1, "concurrency": 1}) == (
        "o",
        LimitKind.CONCURRENCY,
    )
    assert await refusing({"rpm": 1}, {"rpm": 1, "concurrency": 1}) == ("k1", LimitKind.CONCURRENCY)
    assert await refusing({"rpm": 1}, {"rpm": 1}) == ("o", LimitKind.RPM)
    assert await refusing({}, {"rpm": 1}) == ("k1", LimitKind.RPM)


@pytest.mark.parametrize("allowance_nano", [-5, 0, 10])
async def test_a_call_that_costs_nothing_may_be_made_with_nothing_left(
    permits: Permits, acme: int, allowance_nano: int
) -> None:
    await permits.permit(ask(acme, "c0", 10, FREE))
    await permits.settle(acme, "c0", 10)
    level = LevelLimits("o", balance_nano=allowance_nano, budget_nano=allowance_nano)
    assert await permits.permit(ask(acme, "c1", 0, level)) == GRANTED
    assert await permits.extend(acme, "c1", 0, (level,)) == GRANTED
    refused = await permits.permit(ask(acme, "c2", 1, level))
    assert refused == Refused("o", LimitKind.BALANCE, allowance_nano - 10, allowance_nano, None)


async def test_concurrency_counts_open_calls(permits: Permits, acme: int) -> None:
    level = LevelLimits("k1", concurrency=2)
    assert await permits.permit(ask(acme, "c1", 1, level)) == GRANTED
    assert await permits.permit(ask(acme, "c2", 1, level)) == GRANTED
    refused = Refused("k1", LimitKind.CONCURRENCY, left_nano=None, limit=2, reset_s=None)
    assert await permits.permit(ask(acme, "c3", 1, level)) == refused
    await permits.settle(acme, "c1", 1)
    assert await permits.permit(ask(acme, "c3", 1, level)) == GRANTED


async def test_a_permit_asked_twice_is_held_once(permits: Permits, acme: int) -> None:
    level = LevelLimits("o", budget_nano=100, concurrency=1)
    answers = await asyncio.gather(*(permits.permit(ask(acme, "c1", 100, level)) for _ in range(3)))
    assert answers == [GRANTED] * 3
    assert await permits.permit(ask(acme, "c1", 100, level)) == GRANTED
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 100, 1)


async def test_a_settling_asked_twice_is_counted_once(permits: Permits, acme: int) -> None:
    await permits.permit(ask(acme, "c1", 100))
    assert await asyncio.gather(*(permits.settle(acme, "c1", 70) for _ in range(3))) == [True, False, False]
    assert not await permits.settle(acme, "c1", 70)
    assert not await permits.settle(acme, "never-asked", 70)
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(70, 0, 0)


async def test_one_turn_is_decided_in_its_order(permits: Permits, acme: int) -> None:
    level = LevelLimits("o", budget_nano=100)
    answers = await asyncio.gather(
        permits.permit(ask(acme, "c1", 100, level)),
        permits.permit(ask(acme, "c2", 1, level)),
        permits.settle(acme, "c1", 40),
        permits.permit(ask(acme, "c2", 60, level)),
        permits.extend(acme, "c2", 1, (level,)),
        permits.settle(acme, "c2", 60),
    )
    empty = Refused("o", LimitKind.BUDGET, left_nano=0, limit=100, reset_s=None)
    assert answers == [GRANTED, empty, True, GRANTED, empty, True]
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(100, 0, 0)


async def test_a_turn_longer_than_a_batch_is_still_exact(permits: Permits, acme: int) -> None:
    level = LevelLimits("o", budget_nano=3000)
    answers = await asyncio.gather(*(permits.permit(ask(acme, f"c{n}", 10, level)) for n in range(500)))
    assert [answer == GRANTED for answer in answers] == [True] * 300 + [False] * 200


async def test_organizations_do_not_touch(permits: Permits, acme: int) -> None:
    other = acme + 10**6
    await permits.initialise(other, {})
    level = LevelLimits("o", budget_nano=10)
    first, second = await asyncio.gather(
        permits.permit(ask(acme, "c1", 10, level)), permits.permit(ask(other, "c1", 10, level))
    )
    assert (first, second) == (GRANTED, GRANTED)
    assert await permits.settle(acme, "c1", 1)
    assert (await permits.read_use(other, ["o"]))["o"] == Use(0, 10, 1)


async def test_changed_limits_of_a_level_may_meet_in_one_turn(permits: Permits, acme: int) -> None:
    old, new = LevelLimits("o", budget_nano=10), LevelLimits("o", budget_nano=20)
    answers = await asyncio.gather(
        permits.permit(ask(acme, "c1", 10, old)),
        permits.permit(ask(acme, "c2", 10, old)),
        permits.permit(ask(acme, "c3", 10, new)),
    )
    assert [answer == GRANTED for answer in answers] == [True, False, True]


async def test_eight_levels_are_held_together(permits: Permits, acme: int) -> None:
    levels = tuple(LevelLimits(f"level-{n}", budget_nano=100 - n, rpm=9) for n in range(8))
    assert await permits.permit(ask(acme, "c1", 93, *levels)) == GRANTED
    assert await permits.permit(ask(acme, "c2", 1, *levels)) == Refused(
        "level-7", LimitKind.BUDGET, left_nano=0, limit=93, reset_s=None
    )


async def test_amounts_far_beyond_doubles_are_exact(permits: Permits, acme: int) -> None:
    most = 2**63 - 1
    unlimited, limited = LevelLimits("o"), LevelLimits("k1", budget_nano=most)
    assert await permits.permit(ask(acme, "c1", most - 3, unlimited, limited)) == GRANTED
    refused = Refused("k1", LimitKind.BUDGET, left_nano=3, limit=most, reset_s=None)
    assert await permits.permit(ask(acme, "c2", 4, unlimited, limited)) == refused
    assert await permits.permit(ask(acme, "c2", 2, unlimited, limited)) == GRANTED
    assert await permits.extend(acme, "c2", 2, (limited,)) == replace(refused, left_nano=1)
    assert await permits.extend(acme, "c2", 1, (limited,)) == GRANTED
    for n in range(3):
        assert await permits.permit(ask(acme, f"d{n}", most, unlimited)) == GRANTED
        assert await permits.settle(acme, f"d{n}", most - n)
    assert await permits.read_use(acme, ["o", "k1"]) == {
        "o": Use(spent_nano=3 * most - 3, held_nano=most, open=2),
        "k1": Use(spent_nano=0, held_nano=most, open=2),
    }
    spent = await permits.permit(ask(acme, "e", 1, LevelLimits("o", balance_nano=-most)))
    assert spent == Refused("o", LimitKind.BALANCE, -most - (3 * most - 3) - most, -most, None)


async def test_a_stream_that_outgrows_its_hold_gets_more_while_there_is_more(
    permits: Permits, acme: int
) -> None:
    levels = (LevelLimits("o", balance_nano=1000), LevelLimits("k1", budget_nano=100))
    await permits.permit(ask(acme, "c1", 80, *levels))
    assert await permits.extend(acme, "c1", 20, levels) == GRANTED
    refused = Refused("k1", LimitKind.BUDGET, left_nano=0, limit=100, reset_s=None)
    assert await permits.extend(acme, "c1", 1, levels) == refused
    assert (await permits.read_use(acme, ["o", "k1"])) == {"o": Use(0, 100, 1), "k1": Use(0, 100, 1)}
    assert await permits.settle(acme, "c1", 100)
    assert (await permits.read_use(acme, ["o", "k1"])) == {"o": Use(100, 0, 0), "k1": Use(100, 0, 0)}


async def test_an_extension_asks_no_places(permits: Permits, acme: int) -> None:
    level = LevelLimits("o", rpm=1, concurrency=1)
    await permits.permit(ask(acme, "c1", 80, level))
    assert await permits.extend(acme, "c1", 20, (level,)) == GRANTED


async def test_a_call_without_a_hold_cannot_be_extended(permits: Permits, acme: int) -> None:
    with pytest.raises(HoldMissing, match="c1"):
        await permits.extend(acme, "c1", 1, (FREE,))
    await permits.permit(ask(acme, "c1", 80))
    await permits.settle(acme, "c1", 80)
    with pytest.raises(HoldMissing):
        await permits.extend(acme, "c1", 1, (FREE,))


async def test_a_renewed_hold_outlives_its_lease(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await asyncio.gather(permits.permit(ask(acme, "c1", 10)), permits.permit(ask(acme, "c2", 10)))
    clock.pass_s(59)
    assert await permits.renew(acme, ["c1", "gone"], 60) == {"gone"}
    clock.pass_s(2)
    assert sweep_holds(client, [acme], now_ms=clock()).swept == 1
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 10, 1)
    clock.pass_s(57.9)
    assert sweep_holds(client, [acme], now_ms=clock()).swept == 0
    clock.pass_s(0.1)
    assert sweep_holds(client, [acme], now_ms=clock()).swept == 1


async def test_many_calls_are_renewed(permits: Permits, acme: int) -> None:
    ids = [f"c{n}" for n in range(300)]
    await asyncio.gather(*(permits.permit(ask(acme, call_id, 1)) for call_id in ids))
    assert await permits.renew(acme, [*ids, "gone"], 60) == {"gone"}
    assert await permits.renew(acme, [], 60) == frozenset()


@pytest.mark.parametrize("sign_of_life", ["renew", "extend", "announce", "permit"])
async def test_a_swept_call_that_lives_is_held_again(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis, sign_of_life: str
) -> None:
    await permits.permit(ask(acme, "c1", 10))
    clock.pass_s(61)
    sweep_holds(client, [acme], now_ms=clock())
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 0, 0)
    match sign_of_life:
        case "renew":
            assert await permits.renew(acme, ["c1"], 60) == frozenset()
        case "extend":
            assert await permits.extend(acme, "c1", 0, (FREE,)) == GRANTED
        case "announce":
            assert await permits.announce(acme, [OpenHold("c1", 10, ("o", "k1"))], 60) == 1
        case "permit":
            assert await permits.permit(ask(acme, "c1", 10)) == GRANTED
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 10, 1)
    clock.pass_s(59)
    assert sweep_holds(client, [acme], now_ms=clock()).swept == 0
    assert await permits.settle(acme, "c1", 7)
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(7, 0, 0)


async def test_the_extension_of_a_swept_call_asks_for_all_of_it(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    level = LevelLimits("o", budget_nano=100)
    await permits.permit(ask(acme, "c1", 60, level))
    clock.pass_s(61)
    sweep_holds(client, [acme], now_ms=clock())
    await permits.permit(ask(acme, "c2", 50, level))
    refused = Refused("o", LimitKind.BUDGET, left_nano=50, limit=100, reset_s=None)
    assert await permits.extend(acme, "c1", 1, (level,)) == refused
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 50, 1)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda permits: permits.settle(1, "c", -1),
        lambda permits: permits.settle(1, "", 1),
        lambda permits: permits.extend(1, "c", 2**63, (FREE,)),
        lambda permits: permits.extend(1, "c", 1, (FREE, FREE)),
        lambda permits: permits.renew(1, ["c"], 0),
        lambda permits: permits.renew(1, [""], 60),
        lambda permits: permits.announce(1, [], 0),
        lambda permits: permits.initialise(1, {"epoch": 1}),
        lambda permits: permits.initialise(1, {"o": -1}),
    ],
)
async def test_what_is_out_of_range_is_not_sent(permits: Permits, attempt) -> None:
    with pytest.raises(ValueError, match=r"amount|call id|lease|level"):
        await attempt(permits)


async def test_the_clock_of_the_store_is_used_by_default(
    store: Store, acme: int, client: redis.Redis
) -> None:
    await Permits(store).permit(ask(acme, "c1", 1))
    due_ms = client.zscore(f"{{org:{acme}}}:due", "c1")
    seconds, microseconds = client.time()
    assert 0 <= seconds * 1000 + microseconds / 1000 + 60_000 - due_ms < 5000
