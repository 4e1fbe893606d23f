"""One script call for all operations of one organization in one turn of the event loop.

`Batch` writes the arguments that lua/book.lua reads (its head says which) and hands the answers out. Limits
that several operations share are written once: callers pass the same `LevelLimits` object for the same key
and snapshot.
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from relay.admission.limits import GRANTED, LevelLimits, LimitKind, Refused
from relay.admission.scripts import hold_keys, window_key
from relay.admission.wire import StoreError, StoreUnavailable

__all__ = ["Batch", "CountersUnknown", "Heard", "HoldMissing", "Operation"]

# Operations per script call: below 1 ms of the store's one thread, during which it serves nobody else. With 8
# levels each they write 6,144 words; a script can pass about 8,000 to one command.
MOST_OPERATIONS = 128

Heard = Callable[[str, object], None]

_ASKING = frozenset({"p", "x"})  # the letters that can be refused
_KINDS = (
    LimitKind.BALANCE,
    LimitKind.BUDGET,
    LimitKind.CONCURRENCY,
    LimitKind.RPM,
)  # as lua/book.lua numbers them


class CountersUnknown(StoreError):
    """The store does not know what this organization has spent: it is new, or was lost."""

    def __init__(self, organization_id: int) -> None:
        super().__init__(f"the counters of organization {organization_id} are not initialised")
        self.organization_id = organization_id


class HoldMissing(StoreError):
    """The store has no hold of this call: it was settled, or lost with the store and not announced."""

    def __init__(self, call_id: str) -> None:
        super().__init__(f"there is no hold of call {call_id}")
        self.call_id = call_id


class Operation(Struct, eq=False):
    """One thing to do with one call's hold: a letter of lua/book.lua, its arguments, and the rows after them.

    `future` hears True (done), False (nothing to do), Granted or Refused, or the error; where nobody waits,
    there is none, and `heard` is called with the call's id and the same. `is_sent` tells whether the store may
    have seen it.
    """

    letter: str
    call_id: str
    arguments: tuple[int, ...]
    levels: Sequence[LevelLimits] | None
    future: asyncio.Future[object] | None
    heard: Heard | None = None
    is_sent: bool = False

    @property
    def is_moot(self) -> bool:
        """Whether it need not be sent: nobody waits any more for leave to do something."""
        return self.letter in _ASKING and self.future is not None and self.future.cancelled()

    def hear(self, outcome: object) -> None:
        """Pass the outcome on: True, False, Granted, Refused or an exception."""
        future = self.future
        if future is None:
            if self.heard is not None:
                self.heard(self.call_id, outcome)
        elif not future.done():
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class Batch:
    """The slot of one script call (`relay.admission.wire.Slot`)."""

    __slots__ = ("_limits", "_operations", "_organization_id")

    def __init__(self, organization_id: int, operations: Sequence[Operation]) -> None:
        self._organization_id = organization_id
        self._operations = operations
        self._limits: list[LevelLimits] = []  # by number of row, from 1

    def compose(self, now_ms: int | None) -> tuple[list[str], list[str | int]]:
        """The keys and arguments of the script call. Marks the operations as sent."""
        numbers: dict[
            int, int
        ] = {}  # id of a LevelLimits, alive as long as its operation, -> number of its row
        names: list[str | int] = []
        rows: list[str | int] = []
        keys = list(hold_keys(self._organization_id))
        calls: list[str | int] = []
        body: list[str | int] = []
        for operation in self._operations:
            operation.is_sent = True
            calls.append(operation.call_id)
            body.append(operation.letter)
            body += operation.arguments
            if operation.levels is None:
                continue
            body.append(len(operation.levels))
            for limits in operation.levels:
                number = numbers.get(id(limits))
                if number is None:
                    self._limits.append(limits)
                    number = numbers[id(limits)] = len(self._limits)
                    names.append(limits.level)
                    rows += limits.row
                    keys.append(window_key(self._organization_id, limits.level))
                body.append(number)
        head: list[str | int] = ["" if now_ms is None else now_ms, len(calls), len(self._limits)]
        return keys, head + calls + names + rows + body

    def deliver(self, answer: object) -> None:
        """Hand out the answers. A wrong shape is a failure of all: what it would mean can't be known."""
        if not isinstance(answer, list) or len(answer) != len(self._operations):
            self.fail("the limit store gave a wrong number of answers")
            return
        for operation, item in zip(self._operations, answer, strict=True):
            if item == 1:
                operation.hear(GRANTED if operation.letter in _ASKING else True)
            else:
                operation.hear(self._read(operation, item))

    def fail(self, reason: str) -> None:
        """Tell everyone who waits."""
        for operation in self._operations:
            operation.hear(StoreUnavailable(reason))

    def _read(self, operation: Operation, item: object) -> object:
        """What an answer other than 1 means: the outcome, or the exception to raise."""
        is_limited = operation.letter in _ASKING
        match item:
            case 0:
                return HoldMissing(operation.call_id) if is_limited else False
            case -1:
                return CountersUnknown(self._organization_id)
            case [0, int(row), int(kind), bytes(left), reset] if is_limited and row > 0 and kind > 0:
                try:
                    return _read_refusal(self._limits[row - 1], _KINDS[kind - 1], left, reset)
                except (IndexError, KeyError, ValueError):
                    return StoreUnavailable("the limit store gave a refusal that can't be read")
        return StoreUnavailable("the limit store gave an answer that was not asked for")


def _read_refusal(limits: LevelLimits, kind: LimitKind, left: bytes, reset: object) -> Refused:
    return Refused(
        level=limits.level,
        kind=kind,
        left_nano=int(left) if left else None,
        limit=limits.limit(kind),
        reset_s=reset / 1000 if isinstance(reset, int) else None,
    )
