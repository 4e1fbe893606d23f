"""The station "permit": may this call be made, and the money it may cost is held. Exact over any number of
processes.

What is left of an allowance is allowance - spent - held. The allowance comes with the request, out of the
snapshot; spent and held are in the limit store, per organization and level (`relay.admission.scripts`,
lua/holds.lua). A call

    permit   takes a hold at every level, or none, and counts as open
    extend   adds to its hold, when its answer outgrows it
    renew    keeps its hold for another lease; a process does so for all its open calls, well within the lease
    settle   gives its hold back and counts the true amount as spent, once, however often it is asked

A process that dies leaves holds behind; when their lease has run out, the sweeper (`relay.admission.sweep`)
takes them off the counters but remembers them for two days, so that a settling that comes late is still
counted, once. A swept call that turns out to live (renew, extend, announce) counts as held again.

Order of checks: money of every level, outermost first, balance before budget; then concurrency of every
level; then rpm. The first that fails is the refusal. A call is granted if spent + held + hold <= allowance,
open < concurrency, and fewer than rpm calls were granted in the last 60 s. **A hold of 0 is never refused for
money**: a call of a free model costs nothing, so it may be made with nothing left or even below it. Refused
calls count nowhere.

All operations of one turn of the event loop go out together, one script call per organization, decided in
their order.

    StoreError
    ├── StoreUnavailable   away, slow, refusing: 503
    ├── NotReady           what must happen before a hold is taken failed (`before_send`): nothing was sent
    ├── CountersUnknown    the store was never told, or forgot, what the organization spent: rebuild, 503
    └── HoldMissing        extend: this call has no hold (settled, or lost with the store)

How counters come back after a store was lost: `relay.admission.rebuild`.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

from relay.admission.batch import MOST_OPERATIONS, Batch, CountersUnknown, Heard, HoldMissing, Operation
from relay.admission.limits import (
    GRANTED,
    Granted,
    LevelLimits,
    LimitKind,
    OpenHold,
    PermitRequest,
    Refused,
    Use,
    check_amount,
    check_call,
    check_lease,
    check_levels,
)
from relay.admission.scripts import (
    BOOK,
    INITIALISE,
    PERMIT_SCRIPTS,
    hold_keys,
    initialise_arguments,
    parse_use,
    use_key,
)
from relay.admission.store import Store
from relay.admission.wire import StoreError, StoreUnavailable

__all__ = [
    "GRANTED",
    "PERMIT_SCRIPTS",
    "CountersUnknown",
    "Granted",
    "HoldMissing",
    "LevelLimits",
    "LimitKind",
    "NotReady",
    "OpenHold",
    "PermitRequest",
    "Permits",
    "Refused",
    "StoreError",
    "StoreUnavailable",
    "Use",
]


class NotReady(StoreError):
    """Nothing was sent to the store: what had to happen before has failed."""


class Permits:
    """Holds and limits over one store connection, best made with `scripts=PERMIT_SCRIPTS`.

    `before_send` is called before the operations of a turn go out; if it raises OSError, those that would take a hold
    fail. `clock_ms` replaces the store's clock, for tests.
    """

    def __init__(
        self,
        store: Store,
        *,
        before_send: Callable[[], None] | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._store = store
        self._before_send = before_send
        self._clock_ms = clock_ms
        self._turn: dict[int, list[Operation]] = {}  # organization id -> operations of this turn

    async def permit(self, request: PermitRequest) -> Granted | Refused:
        """Take the hold, or say which limit does not allow it. Asked again for a held call: held once.

        Raises StoreUnavailable or CountersUnknown. Where the outcome stays unknown (no answer in time, or the
        caller was cancelled), the call's hold is given back as soon as the store can be told; until then it
        lives for its lease.
        """
        return await self.take(
            request.organization_id,
            request.call_id,
            request.hold_nano,
            _milliseconds(request.lease_s),
            request.levels,
        )

    async def take(
        self,
        organization_id: int,
        call_id: str,
        hold_nano: int,
        lease_ms: int,
        levels: tuple[LevelLimits, ...],
    ) -> Granted | Refused:
        """`permit` for what was checked before: on the way of every call there is no time to check it again."""
        operation = self._new("p", call_id, (hold_nano, lease_ms), levels)
        self._queue(organization_id, operation)
        try:
            return await operation.future  # type: ignore[misc]  # a permit has one, for a verdict
        except (StoreUnavailable, asyncio.CancelledError):
            if operation.is_sent:
                self._queue(organization_id, Operation("s", call_id, (0,), None, None))
            raise

    async def extend(
        self, organization_id: int, call_id: str, extra_nano: int, levels: tuple[LevelLimits, ...]
    ) -> Granted | Refused:
        """Add to the hold of an open call, at all its levels, if every one of the given limits allows it.

        Also renews the hold for its own lease. Money only: the call has entered already. Refused leaves the
        hold as it was. Raises StoreUnavailable, CountersUnknown or HoldMissing.
        """
        check_call(call_id)
        check_amount(extra_nano)
        check_levels([limits.level for limits in levels])
        operation = self._new("x", call_id, (extra_nano,), levels)
        self._queue(organization_id, operation)
        outcome = await _outcome(operation)
        assert isinstance(outcome, Granted | Refused)
        return outcome

    async def settle(self, organization_id: int, call_id: str, amount_nano: int) -> bool:
        """Give the hold back and count the amount as spent. True for the one time that did it, then False.

        Sent even if the caller is cancelled in this turn. Raises StoreUnavailable or CountersUnknown; asking
        again is safe after both.
        """
        check_call(call_id)
        check_amount(amount_nano)
        operation = self._new("s", call_id, (amount_nano,))
        self._queue(organization_id, operation)
        return await _outcome(operation) is True

    def settle_soon(self, organization_id: int, call_id: str, amount_nano: int, heard: Heard) -> None:
        """As `settle`, without anything to wait in: `heard` is called with the call's id and whether it was this
        one that settled, or the StoreError. It goes out with the other operations of this turn.
        """
        self._queue(organization_id, Operation("s", call_id, (amount_nano,), None, None, heard))

    async def renew(self, organization_id: int, call_ids: Iterable[str], lease_s: float) -> frozenset[str]:
        """Keep the holds of living calls from now on for another lease. Returns the calls that have none.

        Those were settled meanwhile, or lost with the store and should be announced. Raises StoreUnavailable,
        then some may have been renewed.
        """
        check_lease(lease_s)
        lease_ms = _milliseconds(lease_s)
        operations: list[Operation] = []
        for call_id in call_ids:
            check_call(call_id)
            operations.append(self._new("r", call_id, (lease_ms,)))
        renewed = await self._do_all(organization_id, operations)
        return frozenset(op.call_id for op, done in zip(operations, renewed, strict=True) if not done)

    async def announce(self, organization_id: int, holds: Iterable[OpenHold], lease_s: float) -> int:
        """Tell the store of holds that its processes remember. Returns how many it did not count before.

        Asks no limits, and works before the counters are initialised. Only for calls that are open: what was
        settled would be held again, until its lease runs out. Raises StoreUnavailable, then some may have
        been taken in.
        """
        check_lease(lease_s)
        lease_ms = _milliseconds(lease_s)
        names: dict[str, LevelLimits] = {}
        operations: list[Operation] = []
        for hold in holds:
            levels = [names.setdefault(name, LevelLimits(name)) for name in hold.levels]
            operations.append(self._new("a", hold.call_id, (hold.hold_nano, lease_ms), levels))
        return sum(await self._do_all(organization_id, operations))

    async def initialise(
        self, organization_id: int, totals: Mapping[str, int], counted: Collection[str] = ()
    ) -> bool:
        """Say what each level has spent, unless it was said before. True if this was the one that was heard.

        A level that is not named has spent nothing. `counted` are calls whose amount is among the totals: their
        holds, where there are any, count no more. Raises StoreUnavailable.
        """
        for level, spent_nano in totals.items():
            check_levels([level])
            check_amount(spent_nano)
        arguments = initialise_arguments(totals, counted)
        answer = await self._store.run(INITIALISE, hold_keys(organization_id), arguments)
        if answer not in (0, 1):
            raise StoreUnavailable("the limit store gave an answer that was not asked for")
        return answer == 1

    async def read_use(self, organization_id: int, levels: Sequence[str]) -> dict[str, Use]:
        """What each level has used. Raises StoreUnavailable or CountersUnknown."""
        answer = await self._store.call("HMGET", use_key(organization_id), "epoch", *levels)
        try:
            numbers = parse_use(cast(list[bytes | None], answer))
        except (TypeError, ValueError, IndexError) as exc:
            raise StoreUnavailable("the limit store gave an answer that was not asked for") from exc
        if numbers is None:
            raise CountersUnknown(organization_id)
        return {level: Use(*use) for level, use in zip(levels, numbers, strict=True)}

    def _new(
        self,
        letter: str,
        call_id: str,
        arguments: tuple[int, ...],
        levels: Sequence[LevelLimits] | None = None,
    ) -> Operation:
        future: asyncio.Future[object] = self._store.loop.create_future()
        return Operation(letter, call_id, arguments, levels, future)

    def _queue(self, organization_id: int, operation: Operation) -> None:
        turn = self._turn
        if not turn:
            self._store.compose_later(self._compose)
        operations = turn.get(organization_id)
        if operations is None:
            turn[organization_id] = [operation]
        else:
            operations.append(operation)

    async def _do_all(self, organization_id: int, operations: Sequence[Operation]) -> list[bool]:
        """The outcomes of many operations, with a pause for other work after each batch."""
        outcomes: list[bool] = []
        for first in range(0, len(operations), MOST_OPERATIONS):
            some = operations[first : first + MOST_OPERATIONS]
            for operation in some:
                self._queue(organization_id, operation)
            answers = await asyncio.gather(*(_outcome(operation) for operation in some))
            outcomes += [answer is True for answer in answers]
        return outcomes

    def _compose(self) -> None:
        """Called by the store at the end of the turn: one script call per organization."""
        turn, self._turn = self._turn, {}
        if self._before_send is not None:
            try:
                self._before_send()
            except OSError as exc:
                turn = _without_permits(turn, str(exc))
        now_ms = None if self._clock_ms is None else self._clock_ms()
        for organization_id, operations in turn.items():
            wanted = [operation for operation in operations if not operation.is_moot]
            for first in range(0, len(wanted), MOST_OPERATIONS):
                batch = Batch(organization_id, wanted[first : first + MOST_OPERATIONS])
                keys, arguments = batch.compose(now_ms)
                self._store.send_script(BOOK, keys, arguments, batch)


def _without_permits(turn: dict[int, list[Operation]], reason: str) -> dict[int, list[Operation]]:
    """Fail those that would take a hold; the others go out."""
    left: dict[int, list[Operation]] = {}
    for organization_id, operations in turn.items():
        for operation in operations:
            if operation.letter == "p":
                operation.hear(NotReady(reason))
            else:
                left.setdefault(organization_id, []).append(operation)
    return left


def _milliseconds(lease_s: float) -> int:
    return max(1, round(1000 * lease_s))


async def _outcome(operation: Operation) -> object:
    assert operation.future is not None
    return await operation.future
