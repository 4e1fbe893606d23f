"""Counters that were lost come back once everybody who lives was heard, over a real store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field

import pytest
import redis

from relay.admission.permit import (
    GRANTED,
    PERMIT_SCRIPTS,
    CountersUnknown,
    LevelLimits,
    OpenHold,
    PermitRequest,
    Permits,
    Use,
)
from relay.admission.rebuild import (
    LOOK_S,
    REPORTS_KEY,
    ROUND_KEY,
    WHOLE_KEY,
    Rebuild,
    began_at,
    forget_if_younger,
)
from relay.admission.store import Store
from relay.state.loader import DatabaseAway
from tests.relay.admission.valkey_server import ValkeyServer

ACME = 1
LEVELS = (LevelLimits("o", budget_nano=100), LevelLimits("k1"))
IDS = [f"019aed00-0000-7000-8000-{number:012d}" for number in range(9)]


@dataclass
class Books:
    """The database that all processes share: what is recorded, who lives, whether it answers."""

    recorded: dict[str, int] = field(default_factory=dict)
    living: set[int] = field(default_factory=set)
    is_away: bool = False


class Process:
    """One relay process: its open holds, its journal, and its part in rebuilding."""

    def __init__(self, url: str, books: Books, number: int) -> None:
        self.number = number
        self.journal: dict[str, int] = {}
        self.open: dict[str, int] = {}
        self.flushes = 0
        self._books = books
        self.store = Store(url, scripts=PERMIT_SCRIPTS, timeout_s=5.0)
        self.permits = Permits(self.store)
        self.rebuild = Rebuild(self.store, self.permits, self, lease_s=60)

    async def start(self, *, takes_part: bool = True) -> None:
        await self.store.open()
        self._books.living.add(self.number)
        if takes_part:
            self.rebuild.start(self._holds)

    async def close(self) -> None:
        self._books.living.discard(self.number)
        await self.rebuild.close()
        await self.store.close()

    def _holds(self) -> dict[int, list[OpenHold]]:
        holds = [OpenHold(call_id, amount, ("o", "k1")) for call_id, amount in self.open.items()]
        return {ACME: holds} if holds else {}

    # What `Records` asks.

    async def flush(self) -> None:
        await self._ask()
        self.flushes += 1
        self._books.recorded |= self.journal
        self.journal.clear()

    async def peers(self) -> frozenset[int]:
        await self._ask()
        return frozenset(self._books.living)

    async def totals(
        self, organization_id: int, call_ids: Collection[str]
    ) -> tuple[Mapping[str, int], list[str]]:
        await self._ask()
        recorded = self._books.recorded
        spent = sum(recorded.values())
        return {"o": spent, "k1": spent} if recorded else {}, [name for name in call_ids if name in recorded]

    def is_flushed(self) -> bool:
        return not self.journal

    async def _ask(self) -> None:
        await asyncio.sleep(0)
        if self._books.is_away:
            raise DatabaseAway


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture
async def made(own_server: ValkeyServer, books: Books) -> AsyncIterator[Callable[[int], Process]]:
    processes: list[Process] = []

    def make(number: int) -> Process:
        processes.append(Process(own_server.url, books, number))
        return processes[-1]

    yield make
    for process in processes:
        await process.close()


@pytest.fixture
async def one(made: Callable[[int], Process]) -> Process:
    process = made(1)
    await process.start()
    return process


async def use(process: Process) -> Use:
    return (await process.permits.read_use(ACME, ["o"]))["o"]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110  # what comes about lies in other tasks and the store
            await asyncio.sleep(0.01)


@pytest.fixture
def server(own_server: ValkeyServer) -> redis.Redis:
    return redis.Redis.from_url(own_server.url)


async def test_an_empty_store_is_made_whole_without_being_asked(one: Process, server: redis.Redis) -> None:
    with server:
        await until(lambda: server.exists(WHOLE_KEY))
    assert one.flushes == 1


async def test_a_new_organization_needs_nobody_else(one: Process, books: Books, server: redis.Redis) -> None:
    with server:
        await until(lambda: server.exists(WHOLE_KEY))
    books.living.add(2)  # who would never report
    async with asyncio.timeout(5):
        assert await one.rebuild.bring_back(ACME, may_be_new=True)
    assert await use(one) == Use(0, 0, 0)


async def test_spent_comes_from_records_and_held_from_those_who_hold(
    one: Process, made: Callable[[int], Process], books: Books
) -> None:
    two = made(2)
    await two.start()
    books.recorded = {IDS[0]: 30}
    one.journal, two.journal = {IDS[1]: 5}, {IDS[2]: 6}
    one.open, two.open = {IDS[3]: 10}, {IDS[4]: 20}
    await one.rebuild.bring_back(ACME)
    assert await use(one) == Use(41, 30, 2)
    request = PermitRequest(ACME, IDS[5], 30, 60, LEVELS)
    assert await one.permits.permit(request) != GRANTED


async def test_nobody_is_permitted_until_the_last_one_was_heard(
    one: Process, made: Callable[[int], Process]
) -> None:
    two = made(2)
    two.open = {IDS[4]: 20}
    await two.start(takes_part=False)
    waiting = asyncio.create_task(one.rebuild.bring_back(ACME))
    await until(lambda: one.flushes)
    done, _ = await asyncio.wait([waiting], timeout=0.6)
    assert not done
    with pytest.raises(CountersUnknown):
        await one.permits.permit(PermitRequest(ACME, IDS[5], 1, 60, LEVELS))
    two.rebuild.start(two._holds)
    await waiting
    assert await use(one) == Use(0, 20, 1)


async def test_one_that_dies_unheard_is_waited_for_no_longer(
    one: Process, made: Callable[[int], Process], books: Books
) -> None:
    """Its journal lies beside that of another one, who reads it in the round that begins then."""
    two = made(2)
    await two.start(takes_part=False)
    waiting = asyncio.create_task(one.rebuild.bring_back(ACME))
    await until(lambda: one.flushes)
    flushes = one.flushes
    one.journal = {IDS[1]: 7}
    books.living.discard(2)
    await waiting
    assert one.flushes > flushes
    assert await use(one) == Use(7, 0, 0)


async def test_a_call_that_ends_while_its_counters_come_back_is_counted_once(
    one: Process, made: Callable[[int], Process]
) -> None:
    two = made(2)
    two.open = {IDS[4]: 20}
    await two.start(takes_part=False)
    one.open = {IDS[3]: 10}
    waiting = asyncio.create_task(one.rebuild.bring_back(ACME))
    await until(lambda: one.flushes)
    # Told to the store as open, then over, and shipped before the totals are read.
    one.open.clear()
    one.journal = {IDS[3]: 4}
    await one.flush()
    two.rebuild.start(two._holds)
    await waiting
    assert await use(one) == Use(4, 20, 1)
    assert await one.permits.settle(ACME, IDS[3], 4)
    assert await use(one) == Use(4, 20, 1)


async def test_a_store_that_is_lost_in_the_middle_is_begun_anew(
    one: Process, made: Callable[[int], Process], server: redis.Redis
) -> None:
    two = made(2)
    two.open = {IDS[4]: 20}
    await two.start(takes_part=False)
    one.open = {IDS[3]: 10}
    waiting = asyncio.create_task(one.rebuild.bring_back(ACME))
    await until(lambda: one.flushes)
    with server:
        server.flushall()
    two.rebuild.start(two._holds)
    await waiting
    assert await use(one) == Use(0, 30, 2)


async def test_a_report_of_before_a_loss_does_not_count_for_the_round_after_it(
    one: Process, made: Callable[[int], Process], server: redis.Redis
) -> None:
    """The other process announced its hold to the store that is gone, noted it in the next one, where a third had begun
    a newer round by then.
    """
    await until(lambda: server.get(WHOLE_KEY))
    two = made(2)
    two.open = {IDS[4]: 20}
    await two.start(takes_part=False)
    one.open = {IDS[3]: 10}
    before = one.flushes
    waiting = asyncio.create_task(one.rebuild.bring_back(ACME))
    await until(lambda: one.flushes > before)
    with server, server.pipeline() as together:
        number = int(server.get(ROUND_KEY))
        together.flushall()
        together.set(ROUND_KEY, number + 5)
        together.hset(REPORTS_KEY, "2", number)
        together.execute()
    for _ in range(20):
        await asyncio.sleep(LOOK_S)
        assert not waiting.done()
    two.rebuild.start(two._holds)
    await waiting
    assert await use(one) == Use(0, 30, 2)


async def test_a_newer_round_before_the_end_has_it_done_again(
    one: Process, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is lost, and a round begun in what comes after it, while the totals are read."""
    await until(lambda: server.get(WHOLE_KEY))
    one.open = {IDS[3]: 10}
    read_totals, losses = one.totals, []

    async def totals(organization_id: int, call_ids: Collection[str]) -> tuple[Mapping[str, int], list[str]]:
        if not losses:
            losses.append(int(server.get(ROUND_KEY)) + 5)
            with server.pipeline() as together:
                together.flushall()
                together.set(ROUND_KEY, losses[0])
                together.execute()
        return await read_totals(organization_id, call_ids)

    monkeypatch.setattr(one, "totals", totals)
    with server:
        await one.rebuild.bring_back(ACME)
    assert losses
    assert await use(one) == Use(0, 10, 1)


async def test_one_that_hears_of_it_too_late_has_it_done_again(
    one: Process, made: Callable[[int], Process], books: Books, server: redis.Redis
) -> None:
    two = made(2)
    await two.start()
    with server:
        await until(lambda: server.exists(WHOLE_KEY) and two.flushes)
        await asyncio.sleep(0)
        books.living.discard(2)  # cut off from the database: nobody waits for it
        two.journal = {IDS[2]: 6}
        two.rebuild.touched.add(ACME)
        books.recorded = {IDS[0]: 30}
        two.rebuild._watch.cancel()
        server.flushall()
        await one.rebuild.bring_back(ACME)
        assert await use(one) == Use(30, 0, 0)
        books.living.add(2)
        two.rebuild.start(two._holds)
        await until(lambda: server.hget(f"{{org:{ACME}}}:use", "o") == b"36 0 0")


async def test_a_settling_that_finds_no_hold_is_doubted(
    one: Process, books: Books, server: redis.Redis
) -> None:
    """Its call is older than the counters, so they may lack it."""
    await one.rebuild.bring_back(ACME)
    books.recorded = {IDS[0]: 30}
    one.rebuild.doubt(ACME, IDS[0])
    with server:
        await until(lambda: server.hget(f"{{org:{ACME}}}:use", "o") == b"30 0 0")


async def test_a_call_that_is_younger_than_the_counters_is_none_of_their_doubts(one: Process) -> None:
    await one.rebuild.bring_back(ACME)
    young = "ffffffff-ffff-7000-8000-000000000000"
    assert await forget_if_younger(one.store, ACME, began_at(young)) is False
    assert await forget_if_younger(one.store, ACME, began_at(IDS[0])) is True
    assert await forget_if_younger(one.store, ACME, began_at(IDS[0])) is None


async def test_without_the_database_nothing_comes_back_until_it_is_there(one: Process, books: Books) -> None:
    books.is_away = True
    with pytest.raises(DatabaseAway):
        await one.rebuild.bring_back(ACME)
    books.is_away = False
    await one.rebuild.bring_back(ACME)
    assert await use(one) == Use(0, 0, 0)


async def test_many_who_ask_at_once_share_it(one: Process) -> None:
    await asyncio.gather(*(one.rebuild.bring_back(ACME) for _ in range(50)))
    before = one.flushes
    await asyncio.gather(*(one.rebuild.bring_back(organization) for organization in range(2, 40)))
    assert one.flushes - before <= 2
