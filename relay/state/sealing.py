"""Seals upstream credentials: AES-256-GCM, with keys that can be rotated. No Django: relay processes unseal
too.

A sealed value is `0x01 | key id (8 bytes) | nonce (12 bytes) | ciphertext and tag`. The key id is the start
of the key's SHA-256, so a value finds its key among several: the first (newest) one seals, all of them
unseal. The subject, `upstream:<name>`, is bound in as associated data: a value moved to another row does not
open there.
"""

import hashlib
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["SealError", "is_sealed_with_newest", "seal", "unseal", "upstream_subject"]

_VERSION = b"\x01"
_KEY_ID = 8
_NONCE = 12
_HEADER = len(_VERSION) + _KEY_ID + _NONCE


class SealError(Exception):
    """A value cannot be sealed or unsealed: no key fits, it was changed, or it belongs to another subject."""


def upstream_subject(name: str) -> str:
    """The subject under which the credential of the upstream of this name is sealed."""
    return f"upstream:{name}"


def seal(clear: bytes, keys: Sequence[bytes], *, associated: str) -> bytes:
    """`clear` sealed under the first key, for this subject. Raises SealError if that is no 32-byte key."""
    if not keys or len(keys[0]) != 32:
        raise SealError("sealing needs a key of 32 bytes")
    nonce = secrets.token_bytes(_NONCE)
    header = _VERSION + _key_id(keys[0]) + nonce
    return header + AESGCM(keys[0]).encrypt(nonce, clear, _bound(associated, header))


def unseal(sealed: bytes, keys: Sequence[bytes], *, associated: str) -> bytes:
    """The clear text. Raises SealError if no key fits, or the value was changed or sealed for another
    subject.
    """
    sealed = bytes(sealed)
    header, body = sealed[:_HEADER], sealed[_HEADER:]
    if header[:1] != _VERSION or len(body) < 16:
        raise SealError("not a sealed value")
    for key in keys:
        if header[1 : 1 + _KEY_ID] == _key_id(key):
            try:
                return AESGCM(key).decrypt(header[-_NONCE:], body, _bound(associated, header))
            except InvalidTag as exc:
                raise SealError(f"the value was changed, or is not the one of {associated}") from exc
    raise SealError("sealed under a key that is not among the given ones")


def is_sealed_with_newest(sealed: bytes, keys: Sequence[bytes]) -> bool:
    """Whether the value needs no resealing after a rotation of keys."""
    return bytes(sealed)[1 : 1 + _KEY_ID] == _key_id(keys[0])


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:_KEY_ID]


def _bound(associated: str, header: bytes) -> bytes:
    return header[: 1 + _KEY_ID] + associated.encode()
