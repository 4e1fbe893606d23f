"""Prices as versions: a change is a new row, in force from its moment on; rows that amounts refer to never
change.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts.errors import Invalid
from accounts.permissions import Acting, Permission, require
from billing.models import RATE_FIELDS, Price
from billing.pricing import RATE_CEILING, RATE_DIGITS, scaled

__all__ = ["PriceTerms", "check_terms", "price_in_force", "prices_in_force", "set_price", "terms_of"]


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """What a model costs: per million tokens, in `currency`. None costs what `input` (or `cached_input`)
    costs.
    """

    currency: str
    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write_5m: Decimal | None = None
    cache_write_30m: Decimal | None = None
    cache_write_1h: Decimal | None = None
    read_explicit: Decimal | None = None
    discount: Decimal = Decimal(1)


def terms_of(price: Price) -> PriceTerms:
    """The terms of a version."""
    return PriceTerms(
        currency=price.currency,
        discount=price.discount,
        **{name: getattr(price, name) for name in RATE_FIELDS},
    )


def prices_in_force(now: datetime | None = None) -> QuerySet[Price]:
    """The version in force of every model's price."""
    come: QuerySet[Price] = Price.objects.filter(valid_from__lte=now or Now())
    return come.order_by("model_name", "-valid_from", "-pk").distinct("model_name")


def price_in_force(model_name: str, now: datetime | None = None) -> Price | None:
    """The version in force of one model's price, or None."""
    return prices_in_force(now).filter(model_name=model_name).first()


def set_price(*, acting: Acting, model_name: str, terms: PriceTerms) -> tuple[Price, bool]:
    """Put a price in force now: (its version, whether it is a new one). Takes an operator.

    The same terms as now make no new version. Raises Invalid for a rate out of bounds.
    """
    require(acting, Permission.OPERATE)
    check_terms(terms)
    current = price_in_force(model_name)
    if current is not None and terms_of(current) == terms:
        return current, False
    columns = {name: getattr(terms, name) for name in RATE_FIELDS}
    # The database's clock decides, here and where relay processes ask: another one may run ahead of it.
    made = Price.objects.create(
        model_name=model_name,
        valid_from=Now(),
        currency=terms.currency,
        discount=terms.discount,
        **columns,
    )
    made.refresh_from_db()
    return made, True


def check_terms(terms: PriceTerms) -> None:
    """Raise Invalid for the first value that cannot be."""
    if not (len(terms.currency) == 3 and terms.currency.isascii() and terms.currency.isupper()):
        raise Invalid("currency", "A currency is three capital letters.")
    for name in RATE_FIELDS:
        rate: Decimal | None = getattr(terms, name)
        if rate is None:
            continue
        try:
            scaled(rate, RATE_DIGITS)
        except ValueError as exc:
            raise Invalid(
                name, f"A price is a number from 0 with up to {RATE_DIGITS} digits after the point."
            ) from exc
        if rate > RATE_CEILING:
            raise Invalid(name, f"A price above {RATE_CEILING:,} per million tokens is taken for a slip.")
    if not 0 <= terms.discount <= 100:
        raise Invalid("discount", "A discount is a factor from 0 to 100; 1 is the list price.")
