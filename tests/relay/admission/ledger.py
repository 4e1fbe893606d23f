"""The limit store as a reader would write it down: a slow, plain model that the real one is compared with."""

from dataclasses import dataclass, field

from relay.admission.limits import GRANTED, Granted, LevelLimits, LimitKind, Refused, Use
from relay.admission.sweep import REMEMBER_MS


@dataclass
class Hold:
    amount: int
    lease_ms: int
    levels: tuple[str, ...]
    due_ms: int
    is_swept: bool = False


@dataclass
class Ledger:
    """One organization. Answers are what `Permits` and `sweep_holds` answer, or an error's name."""

    now_ms: int
    holds: dict[str, Hold] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)
    granted_s: dict[str, list[int]] = field(default_factory=dict)

    def use(self, level: str) -> Use:
        held = [hold.amount for hold in self.holds.values() if level in hold.levels and not hold.is_swept]
        return Use(self.spent.get(level, 0), sum(held), len(held))

    def permit(
        self, call_id: str, amount: int, lease_ms: int, levels: tuple[LevelLimits, ...]
    ) -> Granted | Refused:
        hold = self.holds.get(call_id)
        if hold is not None and not hold.is_swept:
            return GRANTED
        refused = self._refuse_money(amount, levels) or self._refuse_entry(levels)
        if refused is not None:
            return refused
        for limits in levels:
            if limits.rpm is not None:
                self.granted_s.setdefault(limits.level, []).append(self.now_ms // 1000)
        names = tuple(limits.level for limits in levels)
        self.holds[call_id] = Hold(amount, lease_ms, names, self.now_ms + lease_ms)
        return GRANTED

    def extend(self, call_id: str, extra: int, levels: tuple[LevelLimits, ...]) -> Granted | Refused | str:
        hold = self.holds.get(call_id)
        if hold is None:
            return "HoldMissing"
        refused = self._refuse_money(hold.amount + extra if hold.is_swept else extra, levels)
        if refused is not None:
            return refused
        hold.amount += extra
        hold.is_swept, hold.due_ms = False, self.now_ms + hold.lease_ms
        return GRANTED

    def settle(self, call_id: str, amount: int) -> bool:
        hold = self.holds.pop(call_id, None)
        for level in hold.levels if hold else ():
            self.spent[level] = self.spent.get(level, 0) + amount
        return hold is not None

    def renew(self, call_id: str, lease_ms: int) -> frozenset[str]:
        hold = self.holds.get(call_id)
        if hold is None:
            return frozenset({call_id})
        hold.is_swept, hold.due_ms = False, self.now_ms + lease_ms
        return frozenset()

    def announce(self, call_id: str, amount: int, lease_ms: int, names: tuple[str, ...]) -> int:
        hold = self.holds.setdefault(call_id, Hold(amount, lease_ms, names, 0, is_swept=True))
        was_swept = hold.is_swept
        hold.is_swept, hold.due_ms = False, self.now_ms + lease_ms
        return int(was_swept)

    def sweep(self) -> tuple[int, int]:
        due = [call_id for call_id, hold in self.holds.items() if hold.due_ms <= self.now_ms]
        forgotten = [call_id for call_id in due if self.holds[call_id].is_swept]
        for call_id in due:
            hold = self.holds[call_id]
            if hold.is_swept:
                del self.holds[call_id]
            else:
                hold.is_swept, hold.due_ms = True, self.now_ms + REMEMBER_MS
        return len(due) - len(forgotten), len(forgotten)

    def _refuse_money(self, amount: int, levels: tuple[LevelLimits, ...]) -> Refused | None:
        for limits in levels:
            use = self.use(limits.level)
            for kind in (LimitKind.BALANCE, LimitKind.BUDGET):
                allowance = limits.balance_nano if kind is LimitKind.BALANCE else limits.budget_nano
                if (
                    allowance is not None
                    and amount > 0
                    and use.spent_nano + use.held_nano + amount > allowance
                ):
                    return Refused(
                        limits.level, kind, allowance - use.spent_nano - use.held_nano, allowance, None
                    )
        return None

    def _refuse_entry(self, levels: tuple[LevelLimits, ...]) -> Refused | None:
        for limits in levels:
            if limits.concurrency is not None and self.use(limits.level).open >= limits.concurrency:
                return Refused(limits.level, LimitKind.CONCURRENCY, None, limits.concurrency, None)
        for limits in levels:
            if limits.rpm is None:
                continue
            seconds = [
                second for second in self.granted_s.get(limits.level, []) if second > self.now_ms // 1000 - 61
            ]
            if len(seconds) >= limits.rpm:
                frees = (
                    (sorted(seconds)[len(seconds) - limits.rpm] + 61) - self.now_ms / 1000
                    if limits.rpm
                    else None
                )
                return Refused(limits.level, LimitKind.RPM, None, limits.rpm, frees)
        return None
