"""Whatever happens in whatever order, the store answers as the plain model does, and its counters add up."""

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from itertools import count

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.admission.permit import (
    PERMIT_SCRIPTS,
    HoldMissing,
    LevelLimits,
    OpenHold,
    PermitRequest,
    Permits,
    Refused,
)
from relay.admission.store import Store
from relay.admission.sweep import sweep_holds
from tests.relay.admission.ledger import Ledger
from tests.relay.admission.valkey_server import Clock, ValkeyServer

_ORGANIZATIONS = count(10**9)
_ALLOWANCES = st.one_of(st.none(), st.sampled_from([-1, 0, 10, 40, 2**53 + 3, 2**63 - 1]))
_AMOUNTS = st.one_of(st.integers(0, 12), st.sampled_from([2**53, 2**53 + 1, 2**62, 2**63 - 1]))
_CALLS = st.sampled_from("abcdefgh")
_LEASES_S = st.sampled_from([5, 60])
_LEVELS = st.tuples(
    st.builds(
        LevelLimits,
        st.just("o"),
        _ALLOWANCES,
        _ALLOWANCES,
        st.sampled_from([None, 4]),
        st.sampled_from([None, 3]),
    ),
    st.builds(
        LevelLimits,
        st.sampled_from(["k1", "k2"]),
        st.none(),
        _ALLOWANCES,
        st.sampled_from([None, 0, 2]),
        st.sampled_from([None, 0, 2]),
    ),
)
_OPERATIONS = st.one_of(
    st.tuples(st.just("permit"), _CALLS, _AMOUNTS, _LEASES_S, _LEVELS),
    st.tuples(st.just("permit"), _CALLS, _AMOUNTS, _LEASES_S, _LEVELS),
    st.tuples(st.just("settle"), _CALLS, _AMOUNTS),
    st.tuples(st.just("extend"), _CALLS, _AMOUNTS, _LEVELS),
    st.tuples(st.just("renew"), _CALLS, _LEASES_S),
    st.tuples(st.just("announce"), _CALLS, _AMOUNTS, _LEASES_S, st.sampled_from([("o", "k1"), ("o", "k2")])),
)
# What happens in a turn, on which of two connections, and how many seconds pass then.
_TURNS = st.tuples(
    st.lists(_OPERATIONS, min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([0, 0.5, 1, 5, 30, 61, 172_800]),
)


@dataclass
class Desk:
    """Two connections of a process, on a loop that lives as long as the module."""

    runner: asyncio.Runner
    permits: tuple[Permits, Permits]
    clock: Clock
    client: redis.Redis


@pytest.fixture(scope="module")
def desk(server: ValkeyServer) -> Iterator[Desk]:
    clock = Clock()

    async def open_store() -> Store:
        store = Store(server.url, scripts=PERMIT_SCRIPTS, timeout_s=5)
        await store.open()
        return store

    with asyncio.Runner() as runner, redis.Redis.from_url(server.url) as client:
        stores = [runner.run(open_store()) for _ in range(2)]
        yield Desk(runner, tuple(Permits(store, clock_ms=clock) for store in stores), clock, client)
        for store in stores:
            runner.run(store.close())


def begin(permits: Permits, organization_id: int, operation: tuple) -> Awaitable[object]:
    match operation:
        case "permit", call_id, amount, lease_s, levels:
            return permits.permit(PermitRequest(organization_id, call_id, amount, lease_s, levels))
        case "settle", call_id, amount:
            return permits.settle(organization_id, call_id, amount)
        case "extend", call_id, amount, levels:
            return permits.extend(organization_id, call_id, amount, levels)
        case "renew", call_id, lease_s:
            return permits.renew(organization_id, [call_id], lease_s)
        case "announce", call_id, amount, lease_s, names:
            return permits.announce(organization_id, [OpenHold(call_id, amount, names)], lease_s)
    raise AssertionError(operation)


def expect(ledger: Ledger, operation: tuple) -> object:
    match operation:
        case "permit", call_id, amount, lease_s, levels:
            return ledger.permit(call_id, amount, lease_s * 1000, levels)
        case "settle", call_id, amount:
            return ledger.settle(call_id, amount)
        case "extend", call_id, amount, levels:
            return ledger.extend(call_id, amount, levels)
        case "renew", call_id, lease_s:
            return ledger.renew(call_id, lease_s * 1000)
        case "announce", call_id, amount, lease_s, names:
            return ledger.announce(call_id, amount, lease_s * 1000, names)
    raise AssertionError(operation)


def plain(answer: object) -> object:
    """An answer in the model's words."""
    if isinstance(answer, HoldMissing):
        return "HoldMissing"
    if isinstance(answer, Refused) and answer.reset_s is not None:
        return (answer.level, answer.kind, answer.limit, round(answer.reset_s, 3))
    return answer


async def run_turn(permits: Permits, organization_id: int, operations: list[tuple]) -> list[object]:
    waiting = [begin(permits, organization_id, operation) for operation in operations]
    return await asyncio.gather(*waiting, return_exceptions=True)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(turns=st.lists(_TURNS, min_size=1, max_size=8))
def test_any_order_adds_up(desk: Desk, turns: list[tuple[list[tuple], bool, float]]) -> None:
    organization_id = next(_ORGANIZATIONS)
    desk.runner.run(desk.permits[0].initialise(organization_id, {}))
    ledger = Ledger(desk.clock())
    for operations, connection, pause_s in turns:
        answers = desk.runner.run(run_turn(desk.permits[connection], organization_id, operations))
        assert list(map(plain, answers)) == [plain(expect(ledger, operation)) for operation in operations]
        desk.clock.pass_s(pause_s)
        ledger.now_ms = desk.clock()
        report = sweep_holds(desk.client, [organization_id], now_ms=desk.clock())
        assert (report.swept, report.forgotten) == ledger.sweep()
        check_sums(desk, organization_id, ledger)


def check_sums(desk: Desk, organization_id: int, ledger: Ledger) -> None:
    """held is the sum of the open holds, open their number, spent the sum of what was settled."""
    use = desk.runner.run(desk.permits[0].read_use(organization_id, ["o", "k1", "k2"]))
    assert use == {level: ledger.use(level) for level in ("o", "k1", "k2")}
    records = [text.split() for text in desk.client.hgetall(f"{{org:{organization_id}}}:holds").values()]
    for level, counted in use.items():
        held = [
            int(amount) for state, amount, _, *names in records if state == b"h" and level.encode() in names
        ]
        assert (counted.held_nano, counted.open) == (sum(held), len(held))
    due = desk.client.zrange(f"{{org:{organization_id}}}:due", 0, -1)
    assert sorted(due) == sorted(desk.client.hkeys(f"{{org:{organization_id}}}:holds"))
