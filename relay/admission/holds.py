"""The station that takes a hold for a call, keeps it alive while the call lives, and settles it once.

Built on `permit` (the exact counters): this module knows which levels a caller has, says refusals in words, has
lost counters brought back (`rebuild`), renews the leases of open calls, and repeats settlings that the store could not
take. Settling never waits in the walk: it is handed over, and seen through here.
"""

import asyncio
import logging
from contextlib import suppress
from decimal import Decimal

from relay.admission.authenticate import Caller
from relay.admission.permit import (
    GRANTED,
    CountersUnknown,
    HoldMissing,
    LevelLimits,
    LimitKind,
    NotReady,
    OpenHold,
    Permits,
    Refused,
    StoreError,
    StoreUnavailable,
)
from relay.admission.rebuild import Rebuild
from relay.errors import ErrorKind, Refusal
from relay.state.loader import DatabaseAway
from relay.state.snapshot import KeyState, OrganizationState

__all__ = ["Holds", "money", "no_journal"]

log = logging.getLogger(__name__)

LEASE_S = 90.0
LEASE_MS = 90_000
RENEW_S = 20.0
RETRY_S = 0.5
# Chosen: the keys in use at a time; a level costs some 600 bytes, and forgetting all of them well below a millisecond.
MOST_LEVELS = 10_000
# A call waits this long for lost counters at most, then it is refused. Chosen: above what a rebuild takes.
REBUILD_S = 3.0
REFILL = "Ask an administrator of your organization to raise it."


def money(nano: int) -> str:
    """Pure. Nano-units as a decimal string without needless zeros.

    >>> money(1_500_000_000), money(-1), money(0)
    ('1.5', '-0.000000001', '0')
    """
    text = f"{Decimal(nano).scaleb(-9):f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


class Holds:
    """The open holds of one process."""

    def __init__(self, permits: Permits, rebuild: Rebuild) -> None:
        self._permits = permits
        self._counters = rebuild
        self._levels: dict[int, tuple[KeyState, OrganizationState, tuple[LevelLimits, ...]]] = {}
        self._open: dict[str, tuple[int, int, tuple[LevelLimits, ...]]] = {}
        self._settling = 0
        self._unsettled: dict[str, tuple[int, int]] = {}
        self._keeper: asyncio.Task[None] | None = None

    @property
    def open_count(self) -> int:
        """Holds taken and not settled yet, settlings under way included."""
        return len(self._open) + len(self._unsettled)

    def start(self) -> None:
        self._counters.start(self._all_holds)
        self._keeper = asyncio.create_task(self._keep(), name="holds")

    async def close(self, within_s: float) -> None:
        """See the settlings through, for at most this long. Holds that are left end with their lease."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._unsettled:
                    await asyncio.sleep(0.01)
                    if not self._settling:
                        await self._settle_again()
        await self._counters.close()

    async def take(self, caller: Caller, call_id: str, hold_nano: int) -> None:
        """Take the hold at every level of the caller, or raise Refusal saying which limit does not allow it."""
        organization_id, levels = caller.organization.id, self._levels_of(caller)
        try:
            answer = await self._permits.take(organization_id, call_id, hold_nano, LEASE_MS, levels)
        except NotReady as exc:
            raise no_journal() from exc
        except CountersUnknown:
            await self._rebuild_or_refuse(organization_id)
            try:
                answer = await self._permits.take(organization_id, call_id, hold_nano, LEASE_MS, levels)
            except StoreError as exc:
                raise _away() from exc
        except StoreUnavailable as exc:
            raise _away() from exc
        if answer is not GRANTED:
            assert isinstance(answer, Refused)
            raise _refusal(answer, caller, hold_nano)
        self._open[call_id] = (organization_id, hold_nano, levels)

    async def grow(self, caller: Caller, call_id: str, extra_nano: int) -> None:
        """Add to the hold of a call whose answer outgrows it. Raises Refusal."""
        organization_id, hold_nano, levels = self._open[call_id]
        limits = self._levels_of(caller)
        try:
            try:
                answer = await self._permits.extend(organization_id, call_id, extra_nano, limits)
            except HoldMissing:
                # The store was lost in the meantime: tell it of this hold, then ask again.
                opened = OpenHold(call_id, hold_nano, tuple(level.level for level in levels))
                await self._permits.announce(organization_id, [opened], LEASE_S)
                answer = await self._permits.extend(organization_id, call_id, extra_nano, limits)
        except StoreError as exc:
            raise _away() from exc
        if isinstance(answer, Refused):
            raise _refusal(answer, caller, extra_nano)
        self._open[call_id] = (organization_id, hold_nano + extra_nano, levels)

    def settle(self, organization_id: int, call_id: str, amount_nano: int) -> None:
        """Hand over the true amount of a call that has ended; returns at once."""
        self._open.pop(call_id, None)
        self._unsettled[call_id] = (organization_id, amount_nano)
        self._counters.touched.add(organization_id)
        self._settling += 1
        self._permits.settle_soon(organization_id, call_id, amount_nano, self._settled)

    def _settled(self, call_id: str, outcome: object) -> None:
        """The store has answered. What it could not take stays unsettled, and is repeated by `_keep`."""
        self._settling -= 1
        if not isinstance(outcome, Exception):
            settled = self._unsettled.pop(call_id, None)
            if outcome is False and settled is not None:
                self._counters.doubt(settled[0], call_id)

    async def _settle_again(self) -> None:
        for call_id, (organization_id, amount_nano) in list(self._unsettled.items()):
            try:
                await self._permits.settle(organization_id, call_id, amount_nano)
            except CountersUnknown:
                with suppress(StoreError, DatabaseAway, TimeoutError):
                    async with asyncio.timeout(REBUILD_S):
                        await self._counters.bring_back(organization_id)
                return
            except StoreUnavailable:
                return
            self._unsettled.pop(call_id, None)

    async def _keep(self) -> None:
        since_renewal = 0.0
        while True:
            await asyncio.sleep(RETRY_S)
            since_renewal += RETRY_S
            if self._unsettled and not self._settling:
                await self._settle_again()
            if since_renewal >= RENEW_S:
                since_renewal = 0.0
                with suppress(StoreError):
                    await self._renew()

    async def _renew(self) -> None:
        for organization_id, holds in self._all_holds().items():
            missing = await self._permits.renew(organization_id, [hold.call_id for hold in holds], LEASE_S)
            lost = [hold for hold in holds if hold.call_id in missing and hold.call_id in self._open]
            if lost:
                await self._permits.announce(organization_id, lost, LEASE_S)

    def _all_holds(self) -> dict[int, list[OpenHold]]:
        found: dict[int, list[OpenHold]] = {}
        for call_id, (organization_id, hold_nano, levels) in self._open.items():
            hold = OpenHold(call_id, hold_nano, tuple(limits.level for limits in levels))
            found.setdefault(organization_id, []).append(hold)
        return found

    async def _rebuild_or_refuse(self, organization_id: int) -> None:
        try:
            async with asyncio.timeout(REBUILD_S):
                await self._counters.bring_back(organization_id, may_be_new=True)
        except (StoreError, DatabaseAway, TimeoutError) as exc:
            raise _away() from exc

    def _levels_of(self, caller: Caller) -> tuple[LevelLimits, ...]:
        """Made once per state of the key and its organization, not once per call."""
        cached = self._levels.get(caller.key.id)
        if cached is not None and cached[0] is caller.key and cached[1] is caller.organization:
            return cached[2]
        organization, key = caller.organization, caller.key
        levels = (
            LevelLimits(
                "o",
                organization.credits_nano,
                organization.budget_nano,
                organization.rpm,
                organization.concurrency,
            ),
            LevelLimits(f"k{key.id}", None, key.budget_nano, key.rpm, key.concurrency),
        )
        if len(self._levels) > MOST_LEVELS:
            self._levels.clear()
        self._levels[key.id] = (key, organization, levels)
        return levels


def no_journal() -> Refusal:
    """Without its line in the journal a call would not be found after a kill."""
    message = "The relay cannot write its journal, so the call was refused."
    return Refusal(ErrorKind.JOURNAL_FULL, message, retry_after_s=5)


def _away() -> Refusal:
    return Refusal(
        ErrorKind.COUNTERS_AWAY,
        "Limits cannot be checked at the moment, so the call was refused. Try again soon.",
        retry_after_s=2,
    )


def _refusal(refused: Refused, caller: Caller, hold_nano: int) -> Refusal:
    """The refusal in words: which limit, of whom, what is left, when it comes back."""
    whose = "organization" if refused.level == "o" else f"key '{caller.key.name}'"
    currency = caller.organization.currency
    left = money(max(0, refused.left_nano or 0))
    if refused.kind is LimitKind.BALANCE:
        text = (
            f"The balance of the {whose} does not cover this call: {left} {currency} left,"
            f" up to {money(hold_nano)} {currency} needed. It comes back with the next top-up."
        )
        return Refusal(ErrorKind.BALANCE_SPENT, text)
    if refused.kind is LimitKind.BUDGET:
        text = (
            f"The budget of the {whose} does not cover this call: {left} of {money(refused.limit)} {currency} left,"
            f" up to {money(hold_nano)} {currency} needed. A budget is for life and does not reset. {REFILL}"
        )
        return Refusal(ErrorKind.BUDGET_SPENT, text)
    if refused.kind is LimitKind.RPM:
        wait = refused.reset_s or 1.0
        free_in = max(1, -int(-wait // 1))
        text = (
            f"The {whose} may make {refused.limit} calls a minute (rpm). The next one is free in {free_in} s."
        )
        return Refusal(ErrorKind.RATE_LIMITED, text, retry_after_s=wait)
    text = f"The {whose} may have {refused.limit} calls open at once (concurrency). Try again when one has ended."
    return Refusal(ErrorKind.CONCURRENCY, text, retry_after_s=1)
