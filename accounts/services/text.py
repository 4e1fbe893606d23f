"""Pure. Checks of the short texts that people give to things."""

import re

from accounts.errors import Invalid

__all__ = ["checked_name", "checked_slug"]

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def checked_name(value: str, *, field: str = "name", longest: int = 100) -> str:
    """`value` without spaces round it. Raises Invalid if nothing is left, it is too long or has control
    characters.

    >>> checked_name("  ci ")
    'ci'
    """
    value = value.strip()
    if not value or len(value) > longest:
        raise Invalid(field, f"A {field} has between 1 and {longest} characters.")
    if not value.isprintable():
        raise Invalid(field, f"A {field} cannot hold control characters.")
    return value


def checked_slug(value: str, *, field: str = "name") -> str:
    """`value` if it may stand in addresses. Raises Invalid otherwise."""
    if not _SLUG.fullmatch(value):
        raise Invalid(
            field,
            f"A {field} has 1 to 63 small letters, digits and inner hyphens.",
        )
    return value
