"""Pure. The header that stops loops: each relay signs what it sends on, and refuses what it has signed itself.

A relay that is its own upstream would call itself for ever, and so would two that point at each other. Every call
upstream carries a hop: a name and its signature, both made from the installation's secret, so that only those who
know it can make or recognise one. A call that arrives with hops of others keeps them, as lines of their own, so
that a ring of any length that fits into `MOST` ends where it began.

Nothing can be read from a hop, neither whose it is nor which upstream it went to: each account sees another one, so
that two accounts at one provider are not tied together by it. A hop that somebody invents is a stranger's: it is
passed on, and blocks nothing.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from hmac import compare_digest

__all__ = ["HOP_HEADER", "Hops", "hop_lines", "hops_in"]

HOP_HEADER = b"x-yizhan-hop"
# Chosen: longer than any chain of relays that means well; what is older is forgotten.
MOST = 16

_NAME_BYTES = 9
_SIGNATURE_BYTES = 15
_HOP = re.compile(rb"[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])")


def hops_in(values: Iterable[bytes]) -> list[bytes]:
    """The hops in header lines of this name, oldest first; what is none is left out.

    >>> hops_in([b"a" * 32 + b", short", b"b" * 32]) == [b"a" * 32, b"b" * 32]
    True
    """
    found = [hop for value in values for part in value.split(b",") if _HOP.fullmatch(hop := part.strip())]
    return found[-MOST:]


def hop_lines(hops: Sequence[bytes]) -> bytes:
    """The header line that passes these hops on; nothing for none.

    >>> hop_lines([b"a" * 32]) == HOP_HEADER + b": " + b"a" * 32 + b"\\r\\n", hop_lines([])
    (True, b'')
    """
    return b"%b: %b\r\n" % (HOP_HEADER, b", ".join(hops)) if hops else b""


class Hops:
    """The hops of one installation. All of its processes know the same secrets; the first one signs, each counts.

    >>> ours, theirs = Hops([b"secret"]), Hops([b"other"])
    >>> ours.is_ours(ours.hop("7")), ours.is_ours(theirs.hop("7")), ours.hop("7") == ours.hop("8")
    (True, False, False)
    """

    __slots__ = ("_keys",)

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._keys = [blake2b(secret, digest_size=32, person=b"yizhan-hop").digest() for secret in secrets]

    def hop(self, upstream: str) -> bytes:
        """What a call to this upstream carries. The same in every process."""
        key = self._keys[0]
        name = blake2b(upstream.encode(), digest_size=_NAME_BYTES, key=key, person=b"name").digest()
        return urlsafe_b64encode(name + _signature(name, key))

    def is_ours(self, hop: bytes) -> bool:
        """Whether this installation has signed the hop."""
        if not _HOP.fullmatch(hop):
            return False
        raw = urlsafe_b64decode(hop)
        name, given = raw[:_NAME_BYTES], raw[_NAME_BYTES:]
        return any(compare_digest(given, _signature(name, key)) for key in self._keys)


def _signature(name: bytes, key: bytes) -> bytes:
    return blake2b(name, digest_size=_SIGNATURE_BYTES, key=key, person=b"signature").digest()
