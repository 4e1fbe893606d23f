"""Pure. `limits` of an organization or a key."""

from accounts.limits import MOST_CALLS, Limits
from billing.pricing import scaled
from gateway.applyfile import later
from gateway.applyfile.places import Place, open_table

__all__ = ["read_limits", "read_nano"]

_MOST_UNITS = 9_000_000_000
_MUST = "a whole number above 0"


def read_limits(place: Place | None, whose: str) -> Limits:
    """The limits at `place`; of none where there is nothing. `whose` is "organization" or "key"."""
    table = place and open_table(place, ("budget", "rpm", "concurrency"), later.FIELDS[f"{whose}.limits"])
    if not table:
        return Limits()
    budget, rpm, concurrency = table.get("budget"), table.get("rpm"), table.get("concurrency")
    return Limits(
        budget_nano=read_nano(budget) if budget else None,
        rpm=rpm.whole(1, MOST_CALLS, _MUST) if rpm else None,
        concurrency=concurrency.whole(1, MOST_CALLS, _MUST) if concurrency else None,
    )


def read_nano(place: Place) -> int | None:
    """An amount of the organization's currency, in nano-units."""
    amount = place.money(9)
    if amount is not None and amount > _MOST_UNITS:
        place.refuse(f"must not be above {_MOST_UNITS:,}")
        return None
    return None if amount is None else scaled(amount, 9)
