"""Pure. How a key looks, and the fingerprint under which it is known.

A key is `sk-yz-` + 8 public characters + `-` + 43 random ones. Only the prefix and an HMAC-SHA256 of the
whole under a server-side pepper are kept; the clear text is shown once. Imported keys keep their form: any 20
to 200 visible ASCII characters. No Django here: the relay process uses this module.
"""

import hashlib
import re
import secrets
import string
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["display_prefix", "fingerprint", "fingerprints", "is_legal_value", "make_key"]

_BLOCK_BYTES = 64  # of SHA-256
_ALPHABET = string.ascii_letters + string.digits
_LEGAL = re.compile(r"[\x21-\x7e]{20,200}")
_OWN_FORM = re.compile(r"sk-yz-[A-Za-z0-9]{8}-")


def make_key() -> str:
    """A new random key with 256 bits of randomness in its secret part."""
    public = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(43))
    return f"sk-yz-{public}-{secret}"


def is_legal_value(value: str) -> bool:
    """Whether `value` may be used as a fixed key: 20 to 200 visible ASCII characters."""
    return _LEGAL.fullmatch(value) is not None


def display_prefix(value: str) -> str:
    """What is shown of a key in lists: enough to recognise it, never enough to use it (at most 14 of 20 and
    more).
    """
    own = _OWN_FORM.match(value)
    return value[: own.end() - 1] if own else value[:8]


def fingerprint(value: bytes, pepper: bytes) -> bytes:
    """HMAC-SHA256 of a key under one pepper (RFC 2104), 32 bytes."""
    inner, outer = _pads(pepper)
    inner, outer = inner.copy(), outer.copy()
    inner.update(value)
    outer.update(inner.digest())
    return outer.digest()


@lru_cache(maxsize=16)
def _pads(pepper: bytes) -> "tuple[hashlib._Hash, hashlib._Hash]":
    """The two hashes begun with the pepper: half of the work, the same for every key."""
    block = (pepper if len(pepper) <= _BLOCK_BYTES else hashlib.sha256(pepper).digest()).ljust(
        _BLOCK_BYTES, b"\0"
    )
    return (
        hashlib.sha256(bytes(byte ^ 0x36 for byte in block)),
        hashlib.sha256(bytes(byte ^ 0x5C for byte in block)),
    )


def fingerprints(value: bytes, peppers: Sequence[bytes]) -> list[bytes]:
    """The fingerprints under each pepper, newest pepper first: a rotation keeps older keys valid."""
    return [fingerprint(value, pepper) for pepper in peppers]
