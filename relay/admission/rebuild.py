"""Brings lost counters back, exactly, though every process knows only a part of them.

What was spent stands in the records, but for what lies in journals that were not shipped yet; what is held, only the
processes know. So nobody is permitted anything until this has happened, in this order:

    1  one process, or several at once, begins a *round*: it raises the round's number in the store
    2  every living process reports: it announces its open holds, ships its own records and those of killed processes
       whose journals lie beside its own, and then notes the number
    3  when all have, whoever began the round reads what was spent from the records, and in the same look which of the
       calls with a hold are part of it; with both the counters are initialised, and the first to do so is heard

A process that dies before its report has left a journal, so the round begins anew. A store that is lost once more in
the middle has lost the round's number too. Numbers are taken from the clock of the store and only rise, so a number of
before the loss is never mistaken for one of after it.

An organization that has no record, in a store that lost nothing since it was looked after, is new: it needs no round.

A settling that finds no hold, of a call that is older than the counters, is a *doubt*: its process was not part of the
round (it was cut off, or its journal lay on a machine that was away), or had settled it before. A process that hears of
a round when it is over already has doubts as well. Then the counters are rebuilt once more, for all is in
the books by now.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID, uuid4

from relay.admission.batch import MOST_OPERATIONS
from relay.admission.limits import OpenHold
from relay.admission.permit import Permits
from relay.admission.scripts import hold_keys, use_key
from relay.admission.store import Store
from relay.admission.wire import StoreError
from relay.state.loader import DatabaseAway

__all__ = ["OpenHolds", "Rebuild", "Records", "began_at", "forget_if_younger"]

log = logging.getLogger(__name__)

T = TypeVar("T")

# Plain keys of the store, of the whole site.
GENERATION_KEY = "yizhan:counters:generation"  # a random name: another one, or none, after the store was lost
ROUND_KEY = "yizhan:counters:round"  # the number of the newest round
REPORTS_KEY = "yizhan:counters:reports"  # process -> the newest round that it has reported for
ROUNDS_KEY = "yizhan:counters:rounds"  # the newest round that is complete, as the score of "complete"
WHOLE_KEY = "yizhan:counters:whole"  # there since the first round after the store was empty

# How soon a process hears of a round, and how often one that began a round looks for reports.
POLL_S, LOOK_S = 0.25, 0.02
# Looks between two questions who lives.
LOOKS = 25
# A process that has not reported for this long is cut off from the store: its holds would have been swept by now.
ROUND_S = 90.0
REPORTS_KEPT_S = 600
# Between the clocks of two machines, and between a call's beginning and its hold.
CLOCKS_S = 5.0

OpenHolds = Callable[[], Mapping[int, Sequence[OpenHold]]]
"""The open holds of this process, by organization."""


class Records(Protocol):
    """What the rebuild asks of journal and database. Every method raises DatabaseAway."""

    number: int

    async def flush(self) -> None:
        """Ship what was journalled until now, by this process and by killed ones whose journals lie beside its own."""

    async def peers(self) -> frozenset[int]:
        """The numbers of the processes that live."""

    async def totals(
        self, organization_id: int, call_ids: Collection[str]
    ) -> tuple[Mapping[str, int], list[str]]:
        """What each level has spent, and which of these calls are part of it, at one moment."""

    def is_flushed(self) -> bool:
        """Whether nothing waits in our journal for the database. Raises nothing."""


class Rebuild:
    """One process's part in it. `lease_s`: for how long an announced hold counts without being renewed."""

    def __init__(self, store: Store, permits: Permits, records: Records, *, lease_s: float) -> None:
        self._store = store
        self._permits = permits
        self._records = records
        self._lease_s = lease_s
        self._open_holds: OpenHolds = dict
        self._reporting = asyncio.Lock()
        self._reported = 0
        # Organizations with calls that have ended and may not be recorded: forgotten when all is shipped and no round
        # is under way.
        self.touched: set[int] = set()
        self._running: asyncio.Task[tuple[int, bytes | None]] | None = None
        self._next: asyncio.Task[tuple[int, bytes | None]] | None = None
        self._tasks: dict[tuple[int, bool], asyncio.Task[bool]] = {}
        self._doubts: dict[int, float] = {}  # organization -> when the oldest doubtful call began, Unix time
        self._watch: asyncio.Task[None] | None = None

    def start(self, open_holds: OpenHolds) -> None:
        """Take part in rounds from now on."""
        self._open_holds = open_holds
        self._watch = asyncio.create_task(self._look_after(), name="counters")

    async def close(self) -> None:
        tasks = [self._watch, self._running, self._next, *self._tasks.values()]
        for task in tasks:
            if task is not None:
                task.cancel()
        for task in tasks:
            if task is not None:
                await asyncio.wait([task])

    async def bring_back(self, organization_id: int, *, may_be_new: bool = False) -> bool:
        """Rebuild the counters of an organization; True if it was this process that did it. Goes on where the caller is
        cancelled.

        `may_be_new`: nothing of it waits to be settled here. Raises StoreError, DatabaseAway.
        """
        name = (organization_id, may_be_new)
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = _begin(self._bring_back(organization_id, may_be_new), "rebuild")
            task.add_done_callback(lambda _: self._tasks.pop(name, None))
        return await asyncio.shield(task)

    def doubt(self, organization_id: int, call_id: str) -> None:
        """Say that a settling found no hold."""
        began = began_at(call_id)
        self._doubts[organization_id] = min(began, self._doubts.get(organization_id, began))

    async def _bring_back(self, organization_id: int, may_be_new: bool) -> bool:
        if may_be_new and await self._store.call("GET", WHOLE_KEY) is not None:
            totals, _ = await self._records.totals(organization_id, ())
            if not totals:
                heard, whole = await self._initialise(organization_id, {}, (), WHOLE_KEY)
                if whole is not None:
                    return heard
        while True:
            _, generation = await self._round()
            ids = cast(list[bytes], await self._store.call("HKEYS", hold_keys(organization_id)[1]))
            totals, counted = await self._records.totals(organization_id, _call_ids(ids))
            heard, present = await self._initialise(organization_id, totals, counted, GENERATION_KEY)
            if present is not None and present == generation:
                return heard
            if heard:  # lost once more: what came after it has our holds no longer
                await self._store.call("HDEL", use_key(organization_id), "epoch")

    async def _initialise(
        self, organization_id: int, totals: Mapping[str, int], counted: Collection[str], guard: str
    ) -> tuple[bool, bytes | None]:
        """Whether we were heard, and the guard's value right after. Without one the store was lost before: then what
        was initialised is undone.
        """
        heard, found = await asyncio.gather(
            self._permits.initialise(organization_id, totals, counted), self._store.call("GET", guard)
        )
        if found is None:
            await self._store.call("HDEL", use_key(organization_id), "epoch")
        elif heard and totals:
            log.info("the counters of organization %d were rebuilt", organization_id)
        return heard, cast(bytes | None, found)

    async def _round(self) -> tuple[int, bytes | None]:
        """The number and the generation of a round that began after now and is complete. Whoever asks while one runs
        shares the next.
        """
        if self._next is None or self._next.done():
            self._next = _begin(self._run_after(self._running), "round")
        return await asyncio.shield(self._next)

    async def _run_after(
        self, before: asyncio.Task[tuple[int, bytes | None]] | None
    ) -> tuple[int, bytes | None]:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        give_up_at = asyncio.get_running_loop().time() + ROUND_S
        while True:
            number, generation = await self._begin_round()
            if await self._is_complete(number, generation, give_up_at):
                await self._store.call("ZADD", ROUNDS_KEY, "GT", number, "complete")
                return number, generation

    async def _begin_round(self) -> tuple[int, bytes | None]:
        # Whoever cannot ask who lives cannot complete a round, and shall bother nobody with one.
        await self._records.peers()
        seconds, micros = cast(list[bytes], await self._store.call("TIME"))
        await self._store.call("SET", ROUND_KEY, int(seconds) * 1_000_000 + int(micros), "NX")
        number = cast(int, await self._store.call("INCR", ROUND_KEY))
        await self._store.call("SET", GENERATION_KEY, uuid4().hex, "NX")
        return number, cast(bytes | None, await self._store.call("GET", GENERATION_KEY))

    async def _is_complete(self, number: int, generation: bytes | None, give_up_at: float) -> bool:
        """True once all who live have reported; False where the round has to begin anew.

        Reports of another generation say nothing: the store was lost between them and what they report.
        """
        awaited = await self._records.peers()
        await self._report(number)
        looks = 0
        while True:
            newest, present, *found = await asyncio.gather(
                self._store.call("GET", ROUND_KEY),
                self._store.call("GET", GENERATION_KEY),
                *(self._store.call("HGET", REPORTS_KEY, peer) for peer in awaited),
            )
            if newest is None or int(cast(bytes, newest)) < number or present != generation:
                return False
            reports = zip(awaited, cast(list[bytes | None], found), strict=True)
            awaited = frozenset(peer for peer, said in reports if said is None or int(said) < number)
            if not awaited - {self._records.number}:
                return True
            if asyncio.get_running_loop().time() > give_up_at:
                log.warning("%d processes did not announce their holds", len(awaited))
                return True
            looks += 1
            if looks % LOOKS == 0 and awaited - await self._records.peers():
                return False
            await asyncio.sleep(LOOK_S)

    async def _report(self, number: int) -> None:
        """This process's part of a round."""
        async with self._reporting:
            if self._reported >= number:
                return
            # Whoever was permitted before the number was read has taken note of it after this.
            await asyncio.sleep(0)
            await self._announce()
            await self._records.flush()
            complete, *_ = await asyncio.gather(
                self._store.call("ZSCORE", ROUNDS_KEY, "complete"),
                self._store.call("HSET", REPORTS_KEY, self._records.number, number),
                self._store.call("EXPIRE", REPORTS_KEY, REPORTS_KEPT_S),
            )
            if self._reported and complete is not None and float(cast(bytes, complete)) > self._reported:
                # Others went on without us: what was shipped too late for them is missing from their totals.
                self._doubts |= dict.fromkeys(self.touched, 0.0)
            self._reported = number

    async def _announce(self) -> None:
        """Tell the store of all open holds. Each goes out in the turn in which its call is seen to be open, so before
        its settling."""
        told: set[str] = set()
        while True:
            untold = {
                organization_id: left
                for organization_id, holds in self._open_holds().items()
                if (left := [hold for hold in holds if hold.call_id not in told])
            }
            if not untold:
                return
            organization_id, left = untold.popitem()
            told.update(hold.call_id for hold in left[:MOST_OPERATIONS])
            await self._permits.announce(organization_id, left[:MOST_OPERATIONS], self._lease_s)

    async def _look_after(self) -> None:
        """Report for rounds that others began, begin one for a store that is empty, and clear doubts."""
        while True:
            with suppress(StoreError, DatabaseAway):
                await self._store.wait_connected()
                newest, whole = await asyncio.gather(
                    self._store.call("GET", ROUND_KEY), self._store.call("GET", WHOLE_KEY)
                )
                number = int(cast(bytes, newest or b"0"))
                if newest is not None and number < self._reported:
                    self._reported = 0  # the store was lost, and the clock of the new one is behind
                if number > self._reported:
                    await self._report(number)
                elif newest is not None and self._records.is_flushed():
                    self.touched.clear()
                if whole is None:
                    number, _ = await self._round()
                    await self._store.call("SET", WHOLE_KEY, number, "NX")
                await self._clear_doubts()
            await asyncio.sleep(POLL_S)

    async def _clear_doubts(self) -> None:
        for organization_id, began in list(self._doubts.items()):
            younger = await forget_if_younger(self._store, organization_id, began)
            if younger:
                log.warning("the counters of organization %d lack a call", organization_id)
            # What somebody else tells the store may be older than the doubt, which stays then.
            is_cleared = younger is False or await self.bring_back(organization_id)
            if is_cleared and self._doubts.get(organization_id) == began:
                del self._doubts[organization_id]


async def forget_if_younger(store: Store, organization_id: int, began: float) -> bool | None:
    """Have an organization's counters rebuilt if they are younger than a call that began at this Unix time and found no
    hold there. True if they were, None if they are forgotten already. Raises StoreUnavailable.
    """
    epoch = cast(bytes | None, await store.call("HGET", use_key(organization_id), "epoch"))
    if epoch is None:
        return None
    if began >= int(epoch) + CLOCKS_S:
        return False
    await store.call("HDEL", use_key(organization_id), "epoch")
    return True


def _call_ids(found: Sequence[bytes]) -> list[str]:
    """Pure. Those that can be the id of a record."""
    ids = []
    for name in found:
        with suppress(ValueError):
            ids.append(str(UUID(name.decode())))
    return ids


def began_at(call_id: str) -> float:
    """Pure. When a call began, from its UUIDv7, in seconds of Unix time.

    >>> began_at("019aed00-0000-7000-8000-000000000000")
    1764933009.408
    """
    return int(call_id.replace("-", "")[:12], 16) / 1000


def _begin(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """A task whose failure is told to whoever waits for it, and to nobody else."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
