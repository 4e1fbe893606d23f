"""Pure. The limits that an organization or a key can carry, as one value."""

from dataclasses import dataclass

from accounts.errors import Invalid

__all__ = ["MOST_CALLS", "MOST_NANO", "Limits"]

# What the columns and the limit store hold.
MOST_NANO = 2**63 - 1
MOST_CALLS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """None is no limit of its own here. `budget_nano` is for life, in the organization's currency."""

    budget_nano: int | None = None
    rpm: int | None = None
    concurrency: int | None = None

    def check(self) -> None:
        """Raise Invalid if a limit is out of its bounds: a budget may be 0, a number of calls may not."""
        if self.budget_nano is not None and not 0 <= self.budget_nano <= MOST_NANO:
            raise Invalid("budget", "A budget must not be below 0 or beyond 9,223,372,036.")
        for field, calls in (("rpm", self.rpm), ("concurrency", self.concurrency)):
            if calls is not None and not 1 <= calls <= MOST_CALLS:
                raise Invalid(field, f"{field} must be a whole number above 0.")
