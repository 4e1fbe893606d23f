"""Pure. What tokens cost: one price function for the hold, the bill and the page that explains the bill.

Everything is integer arithmetic. A rate is the price per million tokens times 10^12, a discount or a
multiplier is the factor times 10^6, an amount is in nano-units (10^-9 of the currency). Products are summed
exactly and rounded once per amount, half to even, so the sum of the parts explains the whole. Token classes
are disjoint (protocols: uncached, cached, three kinds of cache writes, output); reasoning is a part of output
and has no price of its own.

A class without a rate of its own costs what `input` costs, never nothing; only a written 0 is free.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import Protocol, Self

__all__ = [
    "FACTOR_DIGITS",
    "RATE_CEILING",
    "RATE_DIGITS",
    "Breakdown",
    "Line",
    "Rates",
    "TokenCounts",
    "Tokens",
    "amount_and_cost_nano",
    "amount_nano",
    "cost_nano",
    "hold_nano",
    "is_free",
    "lines",
    "scaled",
]

RATE_DIGITS = 12
FACTOR_DIGITS = 6
_TOKENS_PER_RATE = 10**6
_NANO = 10**9
# tokens x rate x factor is in 10^-(12 + 6 + 6) of the currency; a nano-unit is 10^-9 of it.
_PER_NANO: int = 10**RATE_DIGITS * _TOKENS_PER_RATE * 10**FACTOR_DIGITS // _NANO
_ONE = 10**FACTOR_DIGITS
# The dearest price that is taken for one: 1 whole unit of the currency per token. Beyond it lies a mistyped
# file.
RATE_CEILING = 10**6
# Wide enough for any product below, so that a Decimal shown is never a rounded one.
_EXACT = Context(prec=120)


class Tokens(Protocol):
    """What one call used. The classes are disjoint.

    `explicit_cache` says that the upstream bills the cached tokens as explicitly cached ones
    (`read_explicit`).
    """

    @property
    def uncached_input(self) -> int: ...
    @property
    def cached_input(self) -> int: ...
    @property
    def cache_write_5m(self) -> int: ...
    @property
    def cache_write_30m(self) -> int: ...
    @property
    def cache_write_1h(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def explicit_cache(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens as plain figures. `reasoning` is part of `output`."""

    uncached_input: int = 0
    cached_input: int = 0
    cache_write_5m: int = 0
    cache_write_30m: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0
    explicit_cache: bool = False

    @property
    def input(self) -> int:
        """All input tokens, cached and written ones included."""
        return (
            self.uncached_input
            + self.cached_input
            + self.cache_write_5m
            + self.cache_write_30m
            + self.cache_write_1h
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """One version of a model's price. Rates are per million tokens x 10^12, `discount` is x 10^6."""

    version: int
    model_name: str
    currency: str
    input: int
    output: int
    cached_input: int
    cache_write_5m: int
    cache_write_30m: int
    cache_write_1h: int
    read_explicit: int
    discount: int = _ONE
    dearest_input: int = field(init=False, repr=False, compare=False)  # of all classes of input

    def __post_init__(self) -> None:
        object.__setattr__(self, "dearest_input", max(_input_rates(self)))

    @classmethod
    def of(
        cls,
        *,
        version: int,
        model_name: str,
        currency: str,
        input: Decimal | str,
        output: Decimal | str,
        cached_input: Decimal | str | None = None,
        cache_write_5m: Decimal | str | None = None,
        cache_write_30m: Decimal | str | None = None,
        cache_write_1h: Decimal | str | None = None,
        read_explicit: Decimal | str | None = None,
        discount: Decimal | str = "1",
    ) -> Self:
        """Rates from prices per million tokens. None is "not given": the class costs what `input` costs.

        Explicitly cached tokens without a rate of their own are cached tokens. Raises ValueError for a value
        that is negative, not a number or finer than 12 digits after the point.
        """
        base = scaled(input, RATE_DIGITS)

        def rate(value: Decimal | str | None, otherwise: int) -> int:
            return otherwise if value is None else scaled(value, RATE_DIGITS)

        cached = rate(cached_input, base)
        return cls(
            version=version,
            model_name=model_name,
            currency=currency,
            input=base,
            output=scaled(output, RATE_DIGITS),
            cached_input=cached,
            cache_write_5m=rate(cache_write_5m, base),
            cache_write_30m=rate(cache_write_30m, base),
            cache_write_1h=rate(cache_write_1h, base),
            read_explicit=rate(read_explicit, cached),
            discount=scaled(discount, FACTOR_DIGITS),
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One class of tokens on a bill: `tokens` at `rate` per million make `subtotal`, exactly."""

    name: str
    tokens: int
    rate: Decimal
    subtotal: Decimal


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The arithmetic of one amount: the lines sum to `list_total`; times `discount`, rounded once, it is
    `total`.
    """

    lines: tuple[Line, ...]
    list_total: Decimal
    discount: Decimal
    total: Decimal
    currency: str


def scaled(value: Decimal | str, digits: int) -> int:
    """The integer that is `value` x 10^digits. Raises ValueError if it is negative, no number or has finer
    digits.

    >>> scaled("4.00", 12)
    4000000000000
    """
    try:
        number = Decimal(value)
        whole = _EXACT.scaleb(number, digits)
        if not number.is_finite() or whole != whole.to_integral_value(context=_EXACT):
            raise ValueError(f"not a number with at most {digits} digits after the point: {value}")
    except InvalidOperation as exc:
        raise ValueError(f"not a number: {value}") from exc
    if number < 0:
        raise ValueError(f"below zero: {value}")
    return int(whole)


def amount_and_cost_nano(rates: Rates, tokens: Tokens, multiplier: int) -> tuple[int, int]:
    """`amount_nano` and `cost_nano` of one call."""
    exact = _list_sum(rates, tokens)
    amount = _rounded(exact * rates.discount)
    return amount, amount if multiplier == rates.discount else _rounded(exact * multiplier)


def amount_nano(rates: Rates, tokens: Tokens) -> int:
    """What the organization pays: list price times discount, rounded once. Negative counts are none."""
    return _rounded(_list_sum(rates, tokens) * rates.discount)


def cost_nano(rates: Rates, tokens: Tokens, multiplier: int) -> int:
    """What the upstream charges: list price times its multiplier (x 10^6), no discount, rounded once."""
    return _rounded(_list_sum(rates, tokens) * multiplier)


def hold_nano(rates: Rates, input_tokens: int, output_tokens: int) -> int:
    """What to hold for a call of at most these tokens: all input at its dearest class, discount applied.

    Rounded as the bill is. Rounding is monotone, so no bill within these tokens is above it; with input
    priced 0 it is exactly `output_tokens` at the output price.
    """
    total = max(0, input_tokens) * rates.dearest_input + max(0, output_tokens) * rates.output
    return _rounded(total * rates.discount)


def is_free(rates: Rates) -> bool:
    """Whether no call at these rates can cost anything."""
    return rates.discount == 0 or not (rates.output or any(_input_rates(rates)))


def lines(rates: Rates, tokens: Tokens) -> Breakdown:
    """The itemised arithmetic of `amount_nano`, for a page. Classes without tokens are left out; nothing is
    rounded but the total.
    """
    items = tuple(
        Line(name, count, _decimal(rate, RATE_DIGITS), _decimal(count * rate, RATE_DIGITS + 6))
        for name, count, rate in _items(rates, tokens)
        if count
    )
    return Breakdown(
        lines=items,
        list_total=_decimal(_list_sum(rates, tokens), RATE_DIGITS + 6),
        discount=_decimal(rates.discount, FACTOR_DIGITS),
        total=_decimal(amount_nano(rates, tokens), 9),
        currency=rates.currency,
    )


def _input_rates(rates: Rates) -> tuple[int, ...]:
    return (
        rates.input,
        rates.cached_input,
        rates.cache_write_5m,
        rates.cache_write_30m,
        rates.cache_write_1h,
        rates.read_explicit,
    )


def _items(rates: Rates, tokens: Tokens) -> Iterator[tuple[str, int, int]]:
    read, read_rate = "cached_input", rates.cached_input
    if tokens.explicit_cache:
        read, read_rate = "read_explicit", rates.read_explicit
    yield "input", max(0, tokens.uncached_input), rates.input
    yield read, max(0, tokens.cached_input), read_rate
    yield "cache_write_5m", max(0, tokens.cache_write_5m), rates.cache_write_5m
    yield "cache_write_30m", max(0, tokens.cache_write_30m), rates.cache_write_30m
    yield "cache_write_1h", max(0, tokens.cache_write_1h), rates.cache_write_1h
    yield "output", max(0, tokens.output), rates.output


def _list_sum(rates: Rates, tokens: Tokens) -> int:
    """Exact, in 10^-18 of the currency. Negative counts are none."""
    # Written out: this is on the way of every call, and a generator costs more than the arithmetic.
    exact = 0
    if (count := tokens.uncached_input) > 0:
        exact = count * rates.input
    if (count := tokens.output) > 0:
        exact += count * rates.output
    if (count := tokens.cached_input) > 0:
        exact += count * (rates.read_explicit if tokens.explicit_cache else rates.cached_input)
    if (count := tokens.cache_write_5m) > 0:
        exact += count * rates.cache_write_5m
    if (count := tokens.cache_write_30m) > 0:
        exact += count * rates.cache_write_30m
    if (count := tokens.cache_write_1h) > 0:
        exact += count * rates.cache_write_1h
    return exact


def _rounded(exact: int) -> int:
    """From 10^-24 of the currency to nano-units, half to even. `exact` is not negative."""
    whole, rest = divmod(exact, _PER_NANO)
    twice = 2 * rest
    if twice > _PER_NANO or (twice == _PER_NANO and whole % 2 == 1):
        return whole + 1
    return whole


def _decimal(value: int, digits: int) -> Decimal:
    with localcontext(_EXACT):
        shown = Decimal(value).scaleb(-digits).normalize()
        return shown.quantize(Decimal(1)) if shown == shown.to_integral_value() else shown
