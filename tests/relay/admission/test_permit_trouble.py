"""Permits when something is wrong: counters unknown or lost, callers that leave, a store that is slow or killed."""

import asyncio

import pytest
import redis

from relay.admission.permit import (
    GRANTED,
    PERMIT_SCRIPTS,
    CountersUnknown,
    LevelLimits,
    LimitKind,
    NotReady,
    OpenHold,
    PermitRequest,
    Permits,
    Refused,
    StoreUnavailable,
    Use,
)
from relay.admission.store import Store
from tests.relay.admission.valkey_server import ValkeyServer

FREE = LevelLimits("o")
KEY = LevelLimits("k1")


def ask(organization_id: int, call_id: str, hold_nano: int, *levels: LevelLimits) -> PermitRequest:
    return PermitRequest(organization_id, call_id, hold_nano, lease_s=60, levels=levels or (FREE, KEY))


async def test_counters_that_were_never_initialised_permit_nothing(permits: Permits, fresh_id: int) -> None:
    for attempt in (
        permits.permit(ask(fresh_id, "c1", 0)),
        permits.settle(fresh_id, "c1", 0),
        permits.extend(fresh_id, "c1", 0, (FREE,)),
        permits.read_use(fresh_id, ["o"]),
    ):
        with pytest.raises(CountersUnknown) as caught:
            await attempt
        assert caught.value.organization_id == fresh_id


async def test_only_the_first_initialisation_is_heard(permits: Permits, fresh_id: int) -> None:
    results = await asyncio.gather(
        *(permits.initialise(fresh_id, {"o": 70 + n, "k1": 2**62 + 1}) for n in range(3))
    )
    assert results == [True, False, False]
    use = await permits.read_use(fresh_id, ["o", "k1", "k2"])
    assert use == {"o": Use(70, 0, 0), "k1": Use(2**62 + 1, 0, 0), "k2": Use(0, 0, 0)}
    refused = await permits.permit(ask(fresh_id, "c1", 31, LevelLimits("o", balance_nano=100)))
    assert refused == Refused("o", LimitKind.BALANCE, left_nano=30, limit=100, reset_s=None)


async def test_a_lost_store_is_rebuilt_from_holds_and_totals(
    permits: Permits, acme: int, client: redis.Redis
) -> None:
    await permits.permit(ask(acme, "c1", 40))
    client.delete(*client.scan_iter(f"{{org:{acme}}}:*"))
    assert await permits.renew(acme, ["c1"], 60) == {"c1"}
    holds = [OpenHold("c1", 40, ("o", "k1")), OpenHold("c2", 5, ("o", "k2"))]
    assert await permits.announce(acme, holds, 60) == 2
    assert await permits.announce(acme, holds, 60) == 0
    with pytest.raises(CountersUnknown):
        await permits.permit(ask(acme, "c3", 1))
    assert await permits.initialise(acme, {"o": 100, "k1": 60})
    assert await permits.read_use(acme, ["o", "k1", "k2"]) == {
        "o": Use(100, 45, 2),
        "k1": Use(60, 40, 1),
        "k2": Use(0, 5, 1),
    }
    assert await permits.settle(acme, "c1", 30)
    assert (await permits.read_use(acme, ["k1"]))["k1"] == Use(90, 0, 0)


async def test_counters_whose_epoch_was_taken_away_are_told_anew(
    permits: Permits, acme: int, client: redis.Redis
) -> None:
    await permits.permit(ask(acme, "c1", 40))
    await permits.permit(ask(acme, "c2", 40))
    await permits.settle(acme, "c2", 40)
    client.hdel(f"{{org:{acme}}}:use", "epoch")
    assert await permits.initialise(acme, {"o": 7})
    assert await permits.read_use(acme, ["o", "k1"]) == {"o": Use(7, 40, 1), "k1": Use(0, 40, 1)}


async def test_a_nonsense_counter_permits_nothing(permits: Permits, acme: int, client: redis.Redis) -> None:
    client.hset(f"{{org:{acme}}}:use", "o", "many")
    with pytest.raises(StoreUnavailable):
        await permits.permit(ask(acme, "c1", 1))
    with pytest.raises(StoreUnavailable):
        await permits.read_use(acme, ["o"])


async def test_an_answer_that_nobody_waited_for_is_given_back(
    server: ValkeyServer, store: Store, acme: int
) -> None:
    permits = Permits(store)
    asked = asyncio.ensure_future(permits.permit(ask(acme, "c1", 10)))
    await asyncio.sleep(0)  # asked
    await asyncio.sleep(0)  # sent
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(0, 0, 0)


async def test_a_permit_cancelled_before_it_was_sent_is_not_sent(
    store: Store, acme: int, client: redis.Redis
) -> None:
    permits = Permits(store)
    asked = asyncio.ensure_future(permits.permit(ask(acme, "c1", 10, LevelLimits("o", rpm=5))))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    await store.call("PING")
    assert not client.exists(f"{{org:{acme}}}:rpm:o")


async def test_a_settling_is_sent_even_if_its_caller_leaves(permits: Permits, acme: int) -> None:
    await permits.permit(ask(acme, "c1", 10))
    settling = asyncio.ensure_future(permits.settle(acme, "c1", 10))
    await asyncio.sleep(0)
    settling.cancel()
    await asyncio.wait([settling])
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(10, 0, 0)


async def test_a_slow_store_refuses_and_what_it_then_granted_is_given_back(own_server: ValkeyServer) -> None:
    troubles: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: troubles.append(context))
    store = Store(own_server.url, scripts=PERMIT_SCRIPTS, timeout_s=0.5, stall_s=30)
    await store.open()
    permits = Permits(store)
    await permits.initialise(1, {})
    own_server.freeze()
    began = loop.time()
    calls = [permits.permit(ask(1, f"c{n}", 10)) for n in range(20)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    assert loop.time() - began < 3
    own_server.thaw()
    assert (await permits.read_use(1, ["o"]))["o"] == Use(0, 0, 0)
    assert await permits.permit(ask(1, "c1", 10)) == GRANTED
    await store.close()
    assert troubles == []


async def test_a_killed_store_refuses_and_its_successor_is_found(own_server: ValkeyServer) -> None:
    store = Store(own_server.url, scripts=PERMIT_SCRIPTS, timeout_s=1.0)
    await store.open()
    permits = Permits(store)
    await permits.initialise(1, {})
    assert await permits.permit(ask(1, "c1", 10)) == GRANTED
    own_server.kill()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await permits.permit(ask(1, "c2", 10))
    assert loop.time() - began < 3
    own_server.start()
    async with asyncio.timeout(10):
        await store.wait_connected()
    with pytest.raises(CountersUnknown):
        await permits.permit(ask(1, "c2", 10))
    await permits.announce(1, [OpenHold("c1", 10, ("o", "k1"))], 60)
    await permits.initialise(1, {"o": 5})
    assert await permits.permit(ask(1, "c2", 10)) == GRANTED
    assert (await permits.read_use(1, ["o"]))["o"] == Use(5, 20, 2)
    await store.close()


async def test_what_cannot_be_done_before_a_hold_leaves_no_hold(store: Store, acme: int) -> None:
    is_broken = False

    def before_send() -> None:
        if is_broken:
            raise OSError("no room")

    permits = Permits(store, before_send=before_send)
    assert await permits.permit(ask(acme, "c1", 40)) == GRANTED
    is_broken = True
    settled = asyncio.ensure_future(permits.settle(acme, "c1", 7))
    with pytest.raises(NotReady, match="no room"):
        await permits.permit(ask(acme, "c2", 40))
    assert await settled
    assert await permits.read_use(acme, ["o"]) == {"o": Use(7, 0, 0)}
    is_broken = False
    assert await permits.permit(ask(acme, "c2", 40)) == GRANTED
