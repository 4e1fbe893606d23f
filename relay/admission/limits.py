"""Pure. What a call asks the limit store for, and what it can answer.

Level names: "o" is the organization, "k<id>" a key; others may follow. A request lists its levels outermost
first. Amounts are integers in nano-units of the organization's currency.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

__all__ = ["GRANTED", "Granted", "LevelLimits", "LimitKind", "OpenHold", "PermitRequest", "Refused", "Use"]

_NAME: Final = re.compile(r"[!-~]{1,64}")  # visible ASCII: the store separates names by spaces
_MOST_NANO: Final = 2**63 - 1
# Bounds what one script call handles (see MOST_OPERATIONS in relay.admission.batch).
_MOST_LEVELS: Final = 8


class LimitKind(StrEnum):
    """Which of a level's limits refused."""

    BALANCE = "balance"
    BUDGET = "budget"
    CONCURRENCY = "concurrency"
    RPM = "rpm"


@dataclass(frozen=True, slots=True)
class LevelLimits:
    """The limits of one level; None is no limit. Make it once per snapshot, not once per call.

    `balance_nano` is prepaid money: everything credited so far, less the floor that must stay. `budget_nano`
    is the most that may ever be spent. Both stand against the same use: what was spent in all and what is
    held now. Both may be negative. `rpm` is calls granted in any 60 seconds, `concurrency` open calls.
    """

    level: str
    balance_nano: int | None = None
    budget_nano: int | None = None
    rpm: int | None = None
    concurrency: int | None = None
    row: tuple[str, ...] = field(init=False, repr=False, compare=False)  # as lua/limits.lua reads it

    def __post_init__(self) -> None:
        check_levels([self.level])
        for allowance in (self.balance_nano, self.budget_nano):
            if allowance is not None and (not isinstance(allowance, int) or abs(allowance) > _MOST_NANO):
                raise ValueError("an allowance must be an integer of 64 bits")
        for most in (self.concurrency, self.rpm):
            if most is not None and (not isinstance(most, int) or not 0 <= most < 2**31):
                raise ValueError("a number of calls must be an integer from 0 to 2^31")
        limits = (self.balance_nano, self.budget_nano, self.concurrency, self.rpm)
        row = tuple("" if limit is None else str(limit) for limit in limits)
        object.__setattr__(self, "row", row)

    def limit(self, kind: LimitKind) -> int:
        """The value of a limit that is set. Raises KeyError for one that is not."""
        value = {
            LimitKind.BALANCE: self.balance_nano,
            LimitKind.BUDGET: self.budget_nano,
            LimitKind.CONCURRENCY: self.concurrency,
            LimitKind.RPM: self.rpm,
        }[kind]
        if value is None:
            raise KeyError(kind)
        return value


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """Leave to make one call: the most it may cost, held at every level until it is settled.

    `lease_s` is how long the hold lives without being renewed.
    """

    organization_id: int
    call_id: str
    hold_nano: int
    lease_s: float
    levels: tuple[LevelLimits, ...]

    def __post_init__(self) -> None:
        check_call(self.call_id)
        check_amount(self.hold_nano)
        check_lease(self.lease_s)
        check_levels([limits.level for limits in self.levels])


@dataclass(frozen=True, slots=True)
class OpenHold:
    """A hold as the process that took it remembers it."""

    call_id: str
    hold_nano: int
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        check_call(self.call_id)
        check_amount(self.hold_nano)
        check_levels(self.levels)


@dataclass(frozen=True, slots=True)
class Granted:
    """Every level allows the call, and the hold is taken."""


GRANTED: Final = Granted()


@dataclass(frozen=True, slots=True)
class Refused:
    """The first limit that does not allow the call; nothing was taken at any level.

    `left_nano` is what was left of a balance or budget (it may be negative), None for the other kinds.
    `reset_s` is when an rpm limit has a free slot, rounded up to no more than a second; None where no time
    can be told.
    """

    level: str
    kind: LimitKind
    left_nano: int | None
    limit: int
    reset_s: float | None


@dataclass(frozen=True, slots=True)
class Use:
    """What a level has used: settled amounts, open holds, open calls."""

    spent_nano: int
    held_nano: int
    open: int


def check_call(call_id: str) -> None:
    """Pure. Raises ValueError unless it can be a call id: 1 to 64 visible ASCII characters."""
    if not _NAME.fullmatch(call_id):
        raise ValueError("a call id is 1 to 64 visible ASCII characters")


def check_amount(amount_nano: int) -> None:
    """Pure. Raises ValueError unless the amount is an integer from 0 to 2^63 - 1."""
    if not isinstance(amount_nano, int) or not 0 <= amount_nano <= _MOST_NANO:
        raise ValueError("an amount must be an integer from 0 to 2^63 - 1 nano-units")


def check_lease(lease_s: float) -> None:
    """Pure. Raises ValueError unless the lease is from a millisecond to a day."""
    if not 0.001 <= lease_s <= 86_400:
        raise ValueError("a lease must be from 0.001 s to a day")


def check_levels(levels: Sequence[str]) -> None:
    """Pure. Raises ValueError unless these are 1 to 8 names, each once, of 1 to 64 visible characters."""
    if not 0 < len(set(levels)) == len(levels) <= _MOST_LEVELS:
        raise ValueError("from 1 to 8 levels can be named, each once")
    if not all(map(_NAME.fullmatch, levels)) or "epoch" in levels:
        raise ValueError("a level's name is 1 to 64 visible ASCII characters, and not epoch")
