"""What a store is told that has lost its counters: totals, and the calls that are part of them."""

from relay.admission.permit import LevelLimits, OpenHold, PermitRequest, Permits, Use
from tests.relay.admission.valkey_server import Clock

LEVELS = (LevelLimits("o", budget_nano=100), LevelLimits("k1"))


async def announce(permits: Permits, organization_id: int, *names: str) -> None:
    await permits.announce(organization_id, [OpenHold(name, 10, ("o", "k1")) for name in names], 60)


async def test_a_call_that_is_part_of_the_totals_holds_nothing_more(permits: Permits, fresh_id: int) -> None:
    await announce(permits, fresh_id, "a", "b")
    assert await permits.initialise(fresh_id, {"o": 50, "k1": 50}, ["a", "unknown"])
    assert await permits.read_use(fresh_id, ["o", "k1"]) == {"o": Use(50, 10, 1), "k1": Use(50, 10, 1)}


async def test_its_settling_is_heard_and_changes_nothing(permits: Permits, fresh_id: int) -> None:
    await announce(permits, fresh_id, "a", "b")
    await permits.initialise(fresh_id, {"o": 50}, ["a"])
    assert [await permits.settle(fresh_id, name, 7) for name in ("a", "a", "b")] == [True, False, True]
    assert (await permits.read_use(fresh_id, ["o"]))["o"] == Use(57, 0, 0)


async def test_it_does_not_come_back(permits: Permits, fresh_id: int) -> None:
    await announce(permits, fresh_id, "a")
    await permits.initialise(fresh_id, {"o": 50}, ["a"])
    await announce(permits, fresh_id, "a")
    assert await permits.renew(fresh_id, ["a"], 60) == {"a"}
    assert (await permits.read_use(fresh_id, ["o"]))["o"] == Use(50, 0, 0)


async def test_the_second_to_tell_changes_nothing(permits: Permits, fresh_id: int) -> None:
    await announce(permits, fresh_id, "a", "b")
    assert await permits.initialise(fresh_id, {"o": 50}, ["a"])
    assert not await permits.initialise(fresh_id, {"o": 60}, ["a", "b"])
    assert (await permits.read_use(fresh_id, ["o"]))["o"] == Use(50, 10, 1)


async def test_many_calls_are_counted(permits: Permits, fresh_id: int) -> None:
    names = [f"c{number}" for number in range(1_000)]
    await announce(permits, fresh_id, *names)
    assert await permits.initialise(fresh_id, {"o": 50}, names[:999])
    assert await permits.read_use(fresh_id, ["o", "k1"]) == {"o": Use(50, 10, 1), "k1": Use(0, 10, 1)}


async def test_a_hold_that_was_swept_is_counted_too(permits: Permits, acme: int, clock: Clock) -> None:
    """Counters that are rebuilt though the store lost nothing: somebody removed the epoch."""
    await permits.permit(PermitRequest(acme, "a", 10, 60, LEVELS))
    await permits._store.call("HDEL", f"{{org:{acme}}}:use", "epoch")
    assert await permits.initialise(acme, {"o": 7}, ["a"])
    assert await permits.settle(acme, "a", 7)
    assert (await permits.read_use(acme, ["o"]))["o"] == Use(7, 0, 0)
