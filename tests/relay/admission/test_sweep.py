"""Expired holds are given back, once, and their calls may still be settled, once."""

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from relay.admission.permit import LevelLimits, PermitRequest, Permits, StoreUnavailable, Use
from relay.admission.sweep import REMEMBER_MS, SweepReport, settle_recorded, sweep_holds
from tests.relay.admission.valkey_server import Clock, ValkeyServer

LEVELS = (LevelLimits("o"), LevelLimits("k1"))


async def hold(permits: Permits, organization_id: int, number: int, lease_s: float = 60) -> None:
    requests = [PermitRequest(organization_id, f"c{n}", 10, lease_s, LEVELS) for n in range(number)]
    await asyncio.gather(*map(permits.permit, requests))


async def test_it_works(permits: Permits, acme: int, clock: Clock, client: redis.Redis) -> None:
    await hold(permits, acme, 3)
    assert sweep_holds(client, [acme], now_ms=clock()) == SweepReport(0, 0, ())
    clock.pass_s(60)
    assert sweep_holds(client, [acme], now_ms=clock()) == SweepReport(3, 0, ())
    assert await permits.read_use(acme, ["o", "k1"]) == {"o": Use(0, 0, 0), "k1": Use(0, 0, 0)}


async def test_only_the_lease_that_ran_out_is_swept(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await permits.permit(PermitRequest(acme, "short", 10, 30, LEVELS))
    await permits.permit(PermitRequest(acme, "long", 10, 90, LEVELS))
    clock.pass_s(60)
    assert sweep_holds(client, [acme], now_ms=clock()).swept == 1
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 10, 1)


async def test_a_call_may_be_settled_after_its_hold_was_swept_but_once(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await hold(permits, acme, 1)
    clock.pass_s(60)
    sweep_holds(client, [acme], now_ms=clock())
    assert await permits.settle(acme, "c0", 7)
    assert not await permits.settle(acme, "c0", 7)
    assert await permits.read_use(acme, ["o", "k1"]) == {"o": Use(7, 0, 0), "k1": Use(7, 0, 0)}
    assert not client.exists(f"{{org:{acme}}}:holds", f"{{org:{acme}}}:due")


async def test_a_settled_call_is_not_swept(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await hold(permits, acme, 1)
    await permits.settle(acme, "c0", 7)
    clock.pass_s(60)
    assert sweep_holds(client, [acme], now_ms=clock()) == SweepReport(0, 0, ())


async def test_a_swept_call_is_forgotten_after_two_days(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await hold(permits, acme, 2)
    clock.pass_s(60)
    sweep_holds(client, [acme], now_ms=clock())
    clock.pass_s(REMEMBER_MS / 1000 - 1)
    assert sweep_holds(client, [acme], now_ms=clock()) == SweepReport(0, 0, ())
    assert await permits.settle(acme, "c0", 7)
    clock.pass_s(1)
    assert sweep_holds(client, [acme], now_ms=clock()) == SweepReport(0, 1, ())
    assert not await permits.settle(acme, "c1", 7)
    assert not client.exists(f"{{org:{acme}}}:holds", f"{{org:{acme}}}:due")


async def test_sweeping_is_idempotent_and_bounded(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await hold(permits, acme, 50)
    clock.pass_s(60)
    reports = [sweep_holds(client, [acme], now_ms=clock(), most_holds=4) for _ in range(3)]
    assert reports == [SweepReport(32, 0, (acme,)), SweepReport(18, 0, ()), SweepReport(0, 0, ())]
    with pytest.raises(ValueError, match="most_holds"):
        sweep_holds(client, [acme], most_holds=129)


async def test_two_sweepers_at_once_give_back_once(
    permits: Permits, acme: int, clock: Clock, server: ValkeyServer
) -> None:
    await hold(permits, acme, 400)
    clock.pass_s(60)

    def sweep(_: int) -> int:
        with redis.Redis.from_url(server.url) as own_client:
            return sweep_holds(own_client, [acme], now_ms=clock(), most_holds=16).swept

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(sweep, range(4))) == 400
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 0, 0)


async def test_many_organizations_are_swept_in_one_go(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    first = acme * 10**6
    organization_ids = range(first, first + 250)
    for organization_id in organization_ids:
        await permits.initialise(organization_id, {})
        await hold(permits, organization_id, 1)
    clock.pass_s(60)
    assert sweep_holds(client, organization_ids, now_ms=clock()) == SweepReport(250, 0, ())


async def test_the_store_knows_the_time_itself(permits: Permits, acme: int, client: redis.Redis) -> None:
    await hold(permits, acme, 1)  # by a clock that is ahead
    assert sweep_holds(client, [acme]) == SweepReport(0, 0, ())
    client.zadd(f"{{org:{acme}}}:due", {"c0": client.time()[0] * 1000})
    assert sweep_holds(client, [acme]) == SweepReport(1, 0, ())


async def test_a_due_call_without_a_hold_is_forgotten(acme: int, clock: Clock, client: redis.Redis) -> None:
    client.zadd(f"{{org:{acme}}}:due", {"ghost": clock()})
    assert sweep_holds(client, [acme], now_ms=clock()) == SweepReport(0, 1, ())


def test_a_store_that_is_away_is_told(own_server: ValkeyServer) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        own_server.kill()
        with pytest.raises(StoreUnavailable, match="not finished"):
            sweep_holds(client, [1])


async def test_an_expired_hold_of_a_recorded_call_is_settled(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await hold(permits, acme, 3)
    books = {"c0": 7, "c9": 1}
    assert settle_recorded(client, [acme], lambda ids: only(books, ids), now_ms=clock()) == 0
    clock.pass_s(60)
    for settled in (1, 0):
        assert settle_recorded(client, [acme], lambda ids: only(books, ids), now_ms=clock()) == settled
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(7, 20, 2)
    assert not await permits.settle(acme, "c0", 7)


async def test_a_swept_call_is_settled_when_it_comes_into_the_books(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await hold(permits, acme, 2)
    clock.pass_s(60)
    sweep_holds(client, [acme], now_ms=clock())
    for settled, books in ((0, {}), (1, {"c1": 9}), (0, {"c1": 9})):
        assert settle_recorded(client, [acme], lambda ids, b=books: only(b, ids), now_ms=clock()) == settled
        clock.pass_s(5)
    assert await permits.read_use(acme, ["o", "k1"]) == {"o": Use(9, 0, 0), "k1": Use(9, 0, 0)}


async def test_many_recorded_calls_are_settled_in_one_go(
    permits: Permits, acme: int, clock: Clock, client: redis.Redis
) -> None:
    await hold(permits, acme, 300)
    clock.pass_s(60)
    assert settle_recorded(client, [acme], lambda ids: dict.fromkeys(ids, 2), now_ms=clock()) == 300
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(600, 0, 0)


def only(books: dict[str, int], ids: Collection[str]) -> dict[str, int]:
    return {name: amount for name, amount in books.items() if name in ids}
