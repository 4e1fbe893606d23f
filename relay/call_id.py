"""Call ids: UUIDv7 (RFC 9562, 5.7), so that an id says when its call was accepted and records sort by it."""

from random import getrandbits
from time import time

__all__ = ["new_call_id"]


def new_call_id() -> str:
    """A new id: 48 bits of milliseconds since the epoch, 74 random bits. An id is a name, not a secret."""
    stamp = int(time() * 1000)
    random = getrandbits(74)
    text = f"{(stamp << 80) | (0x7 << 76) | ((random >> 62) << 64) | (0x2 << 62) | (random & ((1 << 62) - 1)):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
