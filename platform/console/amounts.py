"""Pure. Amounts as people and programs see them: decimal strings made from nano-units, never floats."""

import re

from billing.pricing import scaled

__all__ = ["NANO_DIGITS", "decimal_string", "nano_of"]

NANO_DIGITS = 9
# The greatest amount that fits a bigint of nano-units, in whole units of the currency.
_CEILING = 2**63 // 10**NANO_DIGITS
_PLAIN = re.compile(r"\d{1,30}(\.\d{1,30})?", re.ASCII)


def decimal_string(nano: int) -> str:
    """The amount in whole units, exact, without trailing zeros.

    >>> decimal_string(99_997_100_000), decimal_string(-10_000_000), decimal_string(0)
    ('99.9971', '-0.01', '0')
    """
    whole, rest = divmod(abs(nano), 10**NANO_DIGITS)
    digits = f"{rest:0{NANO_DIGITS}d}".rstrip("0")
    text = f"{whole}.{digits}" if digits else str(whole)
    return f"-{text}" if nano < 0 else text


def nano_of(text: str) -> int:
    """Nano-units of an amount that a person or a program wrote.

    Raises ValueError if it is no plain number, negative, finer than nine digits after the point or too large.

    >>> nano_of("12.5")
    12500000000
    """
    if _PLAIN.fullmatch(text.strip()) is None:
        raise ValueError(f"not a plain decimal number of 0 or more: {text[:40]}")
    nano = scaled(text.strip(), NANO_DIGITS)
    if nano >= _CEILING * 10**NANO_DIGITS:
        raise ValueError(f"too large: {text}")
    return nano
