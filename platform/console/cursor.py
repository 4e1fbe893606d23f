"""Opaque, signed places in a list: where the next page of a keyset-paged list goes on.

A cursor is made from the sort key of the last row that was shown. It is signed, so that a changed one is refused
instead of showing a page nobody asked for. It grants nothing: what the page shows is decided by its scope.
"""

import base64
import binascii
from collections.abc import Sequence

from django.core.signing import BadSignature, Signer

__all__ = ["BadCursor", "make", "read"]


class BadCursor(ValueError):
    """The text is no cursor of this list."""


def make(kind: str, *parts: str) -> str:
    """The cursor of list `kind` for these parts of a sort key."""
    text = base64.urlsafe_b64encode("|".join(parts).encode()).decode().rstrip("=")
    return _signer(kind).sign(text)


def read(kind: str, text: str, count: int) -> Sequence[str]:
    """The `count` parts inside a cursor of list `kind`. Raises BadCursor for anything that `make` did not give."""
    try:
        body = _signer(kind).unsign(text)
        parts = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode().split("|")
    except (BadSignature, binascii.Error, UnicodeError) as exc:
        raise BadCursor("not a cursor of this list") from exc
    if len(parts) != count:
        raise BadCursor("not a cursor of this list")
    return parts


def _signer(kind: str) -> Signer:
    return Signer(salt=f"console.cursor.{kind}", sep=".")
