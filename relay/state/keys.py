"""Keys by the hundred thousand: each a few packed bytes, made a `KeyState` when a call asks for it.

A key costs about 330 bytes here, indexes included, and nothing that the garbage collector would have to walk. The
table lies in shards, so that no dictionary is ever grown, copied or freed in one long step, and a version of it can be
built beside the one in use (`branch`): a shard is copied when it is first written to.

Lists of models are shared: keys that may call the same models hold one set.
"""

from array import array
from collections.abc import Iterator, Sequence
from math import inf
from struct import Struct as Layout
from weakref import WeakValueDictionary

import msgspec

__all__ = ["KeyState", "KeyTable"]

# Chosen: 400 keys a shard at 100,000, which is copied or freed in 10 to 40 us.
_SHARDS = 256


class KeyState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One key. `models` is None when it may call every model; times are seconds since the epoch."""

    id: int
    organization_id: int
    member_id: int | None
    name: str
    fingerprint: bytes
    models: frozenset[str] | None
    may_call: bool
    expires_at: float | None
    revoked: bool
    budget_nano: int | None
    rpm: int | None
    concurrency: int | None


class _Restricted(msgspec.Struct, frozen=True, gc=False):
    """The entry of a key that may call some models only."""

    packed: bytes
    models: frozenset[str]


_Entry = bytes | _Restricted
Changed = Sequence[bytes]

# id, organization, member, expiry, budget, rpm, concurrency, flags; then the name. -1 (expiry: infinite) is None.
_LAYOUT = Layout("<qqqdqiiB")
_MAY_CALL = 1
_REVOKED = 2

_model_sets: WeakValueDictionary[str, frozenset[str]] = WeakValueDictionary()


def _shared(models: frozenset[str]) -> frozenset[str]:
    """The one set with these members that all entries hold."""
    return _model_sets.setdefault("\0".join(sorted(models)), models)


def _packed(key: KeyState) -> _Entry:
    packed = (
        _LAYOUT.pack(
            key.id,
            key.organization_id,
            -1 if key.member_id is None else key.member_id,
            inf if key.expires_at is None else key.expires_at,
            -1 if key.budget_nano is None else key.budget_nano,
            -1 if key.rpm is None else key.rpm,
            -1 if key.concurrency is None else key.concurrency,
            key.may_call * _MAY_CALL | key.revoked * _REVOKED,
        )
        + key.name.encode()
    )
    return packed if key.models is None else _Restricted(packed, _shared(key.models))


def _id_of(entry: _Entry) -> int:
    packed = entry if isinstance(entry, bytes) else entry.packed
    key_id: int = _LAYOUT.unpack_from(packed)[0]
    return key_id


def _unpacked(fingerprint: bytes, entry: _Entry) -> KeyState:
    if isinstance(entry, bytes):
        packed, models = entry, None
    else:
        packed, models = entry.packed, entry.models
    id_, organization, member, expires, budget, rpm, concurrency, flags = _LAYOUT.unpack_from(packed)
    return KeyState(
        id=id_,
        organization_id=organization,
        member_id=None if member < 0 else member,
        name=packed[_LAYOUT.size :].decode(),
        fingerprint=fingerprint,
        models=models,
        may_call=bool(flags & _MAY_CALL),
        expires_at=None if expires == inf else expires,
        revoked=bool(flags & _REVOKED),
        budget_nano=None if budget < 0 else budget,
        rpm=None if rpm < 0 else rpm,
        concurrency=None if concurrency < 0 else concurrency,
    )


class KeyTable:
    """Every key that memory knows, by fingerprint and by id."""

    __slots__ = ("_borrowed", "_ids", "_prints", "_seen")

    def __init__(self) -> None:
        self._prints: list[dict[bytes, _Entry]] = [{} for _ in range(_SHARDS)]
        self._ids: list[dict[int, bytes]] = [{} for _ in range(_SHARDS)]
        # Shards that another table holds too, by their index: copied before they are written to.
        self._borrowed: set[tuple[int, int]] = set()
        self._seen: list[array[int]] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._ids))

    def get(self, fingerprint: bytes) -> KeyState | None:
        """The key of this fingerprint, made anew from its bytes."""
        entry = self._prints[fingerprint[0]].get(fingerprint)
        return None if entry is None else _unpacked(fingerprint, entry)

    def put(self, key: KeyState) -> Changed:
        """Take over a key. Returns the fingerprints whose key is another one now: none if it is known so already."""
        entry, fingerprint = _packed(key), key.fingerprint
        shard = key.id % _SHARDS
        if self._seen is not None:
            self._seen[shard].append(key.id)
        before = self._ids[shard].get(key.id)
        if before == fingerprint:
            if self._prints[fingerprint[0]].get(fingerprint) == entry:
                return ()
            self._own_prints(fingerprint[0])[before] = entry  # the bytes that both indexes hold
            return (before,)
        if before is not None:
            self._forget(before, key.id)
        self._own_prints(fingerprint[0])[fingerprint] = entry
        self._own_ids(shard)[key.id] = fingerprint
        return (fingerprint,) if before is None else (before, fingerprint)

    def drop(self, key_id: int) -> Changed:
        """Forget a key. Returns the fingerprint under which it was known."""
        before = self._ids[key_id % _SHARDS].get(key_id)
        if before is None:
            return ()
        del self._own_ids(key_id % _SHARDS)[key_id]
        self._forget(before, key_id)
        return (before,)

    def branch(self, *, anew: bool = False) -> "KeyTable":
        """A table of the same keys; what is changed in either of them is not seen in the other.

        `anew`: all keys will be put into it, and `drop_unseen` forgets those that were not.
        """
        made = KeyTable.__new__(KeyTable)
        made._prints, made._ids = list(self._prints), list(self._ids)
        made._borrowed = {(index, shard) for index in (0, 1) for shard in range(_SHARDS)}
        self._borrowed = made._borrowed.copy()
        made._seen = [array("q") for _ in range(_SHARDS)] if anew else None
        return made

    def drop_unseen(self) -> Iterator[None]:
        """Forget the keys that were not put since the branching, a shard at each step."""
        seen, self._seen = self._seen or [], None
        for shard, ids in enumerate(seen):
            for key_id in self._ids[shard].keys() - set(ids):
                self.drop(key_id)
            yield

    def settle(self) -> None:
        """Nobody uses the other table any more: all shards are ours."""
        self._borrowed.clear()

    def free(self) -> Iterator[None]:
        """Give back what a table that nobody uses holds alone, a shard at each step."""
        while self._prints:
            self._prints.pop()
            self._ids.pop()
            yield

    def _forget(self, fingerprint: bytes, key_id: int) -> None:
        """Take a fingerprint from a key, unless another key has come into it meanwhile."""
        entry = self._prints[fingerprint[0]].get(fingerprint)
        if entry is not None and _id_of(entry) == key_id:
            del self._own_prints(fingerprint[0])[fingerprint]

    def _own_prints(self, shard: int) -> dict[bytes, _Entry]:
        if (0, shard) in self._borrowed:
            self._borrowed.discard((0, shard))
            self._prints[shard] = self._prints[shard].copy()
        return self._prints[shard]

    def _own_ids(self, shard: int) -> dict[int, bytes]:
        if (1, shard) in self._borrowed:
            self._borrowed.discard((1, shard))
            self._ids[shard] = self._ids[shard].copy()
        return self._ids[shard]
