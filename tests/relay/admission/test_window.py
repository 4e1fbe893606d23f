"""Calls in any 60 seconds."""

import random
from bisect import bisect_right

import pytest
import redis

from relay.admission.permit import GRANTED, LevelLimits, LimitKind, PermitRequest, Permits, Refused
from relay.admission.store import Store
from tests.relay.admission.valkey_server import Clock

LEVEL = LevelLimits("k1", rpm=3)


async def call(permits: Permits, organization_id: int, level: LevelLimits = LEVEL) -> object:
    """Make a call of its own and be done with it."""
    call_id = f"c{random.getrandbits(60)}"
    answer = await permits.permit(PermitRequest(organization_id, call_id, 1, 60, (level,)))
    await permits.settle(organization_id, call_id, 1)
    return answer


def full(reset_s: float, limit: int = 3) -> Refused:
    return Refused("k1", LimitKind.RPM, left_nano=None, limit=limit, reset_s=reset_s)


async def test_it_works(permits: Permits, acme: int) -> None:
    answers = [await call(permits, acme) for _ in range(4)]
    assert answers == [GRANTED, GRANTED, GRANTED, full(61.0)]


async def test_a_refusal_tells_when_a_slot_frees_and_then_it_is_free(
    permits: Permits, acme: int, clock: Clock
) -> None:
    clock.now_ms += 250
    for pause_s in (10, 20, 5):
        assert await call(permits, acme) == GRANTED
        clock.pass_s(pause_s)
    # The first call was 35 s ago, in a second that began 0.25 s before it.
    assert await call(permits, acme) == full(61 - 0.25 - 35)
    clock.pass_s(25.749)
    assert await call(permits, acme) == full(0.001)
    clock.pass_s(0.001)
    assert await call(permits, acme) == GRANTED
    assert await call(permits, acme) == full(10.0)


async def test_a_refused_call_takes_no_slot(permits: Permits, acme: int, clock: Clock) -> None:
    poor = LevelLimits("k1", rpm=3, budget_nano=0)
    for _ in range(5):
        assert (await call(permits, acme, poor)) != GRANTED
    assert [await call(permits, acme) for _ in range(3)] == [GRANTED] * 3
    clock.pass_s(30)
    for _ in range(5):
        assert await call(permits, acme) == full(31.0)
    clock.pass_s(31)
    assert [await call(permits, acme) for _ in range(4)] == [GRANTED] * 3 + [full(61.0)]


async def test_a_lowered_limit_waits_for_as_many_slots_as_it_needs(
    permits: Permits, acme: int, clock: Clock
) -> None:
    for _ in range(3):
        await call(permits, acme)
        clock.pass_s(1)
    assert await call(permits, acme, LevelLimits("k1", rpm=1)) == full(60.0, limit=1)
    assert await call(permits, acme, LevelLimits("k1", rpm=2)) == full(59.0, limit=2)
    assert await call(permits, acme, LevelLimits("k1", rpm=3)) == full(58.0)


async def test_what_left_the_window_is_not_counted_again_after_a_refusal(
    permits: Permits, acme: int, clock: Clock
) -> None:
    for _ in range(3):
        await call(permits, acme)
        clock.pass_s(1)
    clock.pass_s(58)
    assert await call(permits, acme, LevelLimits("k1", rpm=1)) == full(2.0, limit=1)
    assert await call(permits, acme, LevelLimits("k1", rpm=1)) == full(2.0, limit=1)
    assert [await call(permits, acme) for _ in range(2)] == [GRANTED, full(1.0)]


async def test_a_limit_of_none_never_frees(permits: Permits, acme: int) -> None:
    never = Refused("k1", LimitKind.RPM, left_nano=None, limit=0, reset_s=None)
    assert await call(permits, acme, LevelLimits("k1", rpm=0)) == never
    await call(permits, acme)
    assert await call(permits, acme, LevelLimits("k1", rpm=0)) == never


async def test_a_clock_set_back_frees_nothing(permits: Permits, acme: int, clock: Clock) -> None:
    await call(permits, acme)
    clock.pass_s(-30)
    assert [await call(permits, acme) for _ in range(3)] == [GRANTED, GRANTED, full(91.0)]
    clock.pass_s(30 + 60)
    assert await call(permits, acme) == full(1.0)
    clock.pass_s(1)
    assert await call(permits, acme) == GRANTED


@pytest.mark.parametrize("seed", range(4))
async def test_no_60_seconds_hold_more_and_no_slot_stays_lost(
    permits: Permits, acme: int, clock: Clock, seed: int
) -> None:
    rng = random.Random(seed)
    limit = rng.choice([1, 2, 7, 20])
    granted: list[float] = []
    for _ in range(300):
        clock.pass_s(rng.choice([0, 0.001, 0.4, 1, 3, 17, 59, 60, 61, 200]) * rng.random())
        now_s = clock() / 1000
        is_granted = await call(permits, acme, LevelLimits("k1", rpm=limit)) == GRANTED
        in_60_s = len(granted) - bisect_right(granted, now_s - 60)
        # A second counts until it has left the 60 wholly.
        in_61_seconds = sum(int(then) > int(now_s) - 61 for then in granted)
        assert is_granted == (in_61_seconds < limit)
        if is_granted:
            assert in_60_s < limit
            granted.append(now_s)


async def test_the_window_goes_away_by_itself(store: Store, acme: int, client: redis.Redis) -> None:
    await call(Permits(store), acme)
    assert 60_000 < client.pttl(f"{{org:{acme}}}:rpm:k1") <= 62_000


async def test_what_left_the_window_leaves_the_store(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    for _ in range(200):
        await call(permits, acme, LevelLimits("k1", rpm=10**6))
        clock.pass_s(1)
    assert client.hlen(f"{{org:{acme}}}:rpm:k1") == 61
