"""What the data plane knows: keys, organizations, models with their routes and prices, as plain values in memory.

Values are immutable; a change replaces them, and what is read anew and is the same stays the same object. The snapshot
in use changes in one synchronous step, so that a call that looks things up without awaiting in between sees one state
of the database: by `apply` where little has changed, and else by `become`, which takes over a `branch` that was brought
up to date beside it, piece by piece, while calls went on.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import msgspec

from billing.pricing import Rates
from relay.state.keys import KeyState, KeyTable

__all__ = [
    "KeyState",
    "ModelState",
    "OrganizationState",
    "RouteState",
    "Snapshot",
    "SnapshotChange",
    "Timeouts",
    "UpstreamState",
]


# Chosen: 2 x 4,096 made keys are 2 MB, and letting one half go takes under a millisecond.
RECENT = 4_096

K = TypeVar("K")
V = TypeVar("V")


class OrganizationState(msgspec.Struct, frozen=True, gc=False):
    """`credits_nano` is all that was ever paid in, corrections included; what was spent lies in the limit store."""

    id: int
    name: str
    currency: str
    enabled: bool
    credits_nano: int
    budget_nano: int | None
    rpm: int | None
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. Plain answers know only `connect_s` and `total_s`."""

    connect_s: float = 5.0
    first_token_s: float = 300.0
    idle_s: float = 120.0
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """One account. `cost_multiplier` is x 10^6. An account whose credential cannot be opened is not `enabled`."""

    id: int
    name: str
    protocol: str
    base_url: str
    allow_private: bool
    proxy: str | None
    credential: str = field(repr=False)
    extra_headers: tuple[tuple[str, str], ...] = field(repr=False)
    timeouts: Timeouts
    cost_multiplier: int
    enabled: bool


@dataclass(frozen=True, slots=True)
class RouteState:
    upstream_id: int
    upstream_model: str
    priority: int
    weight: int


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model on offer. `rates` is None while it has no price: it is then refused by name."""

    id: int
    name: str
    aliases: tuple[str, ...]
    kind: str
    context_tokens: int
    hold_output_tokens: int
    enabled: bool
    created: int
    routes: tuple[RouteState, ...]
    rates: Rates | None = None


@dataclass(slots=True)
class SnapshotChange:
    """Rows that were read anew. An id without a value is gone."""

    organizations: dict[int, OrganizationState | None] = field(default_factory=dict)
    keys: dict[int, KeyState | None] = field(default_factory=dict)
    upstreams: dict[int, UpstreamState | None] = field(default_factory=dict)
    models: dict[int, ModelState | None] = field(default_factory=dict)
    rates: dict[str, Rates | None] = field(default_factory=dict)

    def apply(self, more: "SnapshotChange") -> None:
        """Add what was read besides."""
        self.organizations |= more.organizations
        self.keys |= more.keys
        self.upstreams |= more.upstreams
        self.models |= more.models
        self.rates |= more.rates

    @property
    def is_empty(self) -> bool:
        return not (self.organizations or self.keys or self.upstreams or self.models or self.rates)


class Snapshot:
    """The whole, with the indexes that the walk needs."""

    def __init__(self) -> None:
        self.version = 0
        self.organizations: dict[int, OrganizationState] = {}
        self.upstreams: dict[int, UpstreamState] = {}
        self._keys = KeyTable()
        # Keys that calls have asked for, as objects: those of late, and those of before. One is made at most once per
        # change of it and RECENT other keys.
        self._recent: dict[bytes, KeyState] = {}
        self._before: dict[bytes, KeyState] = {}
        self._models: dict[int, ModelState] = {}
        self._rates: dict[str, Rates] = {}
        self._offered: dict[int, ModelState] = {}
        self._by_name: dict[str, ModelState] = {}
        self._aliases: dict[str, ModelState] = {}
        self._patterns: list[tuple[str, str, ModelState]] = []
        self._unseen: Unseen | None = None

    @property
    def key_count(self) -> int:
        return len(self._keys)

    def key(self, fingerprint: bytes) -> KeyState | None:
        return self._recent.get(fingerprint) or self._key_again(fingerprint)

    def _key_again(self, fingerprint: bytes) -> KeyState | None:
        key = self._before.get(fingerprint) or self._keys.get(fingerprint)
        if key is not None:
            if len(self._recent) >= RECENT:
                self._before, self._recent = self._recent, {}
            self._recent[fingerprint] = key
        return key

    def models(self) -> Iterable[ModelState]:
        """The models on offer, by name."""
        return self._by_name.values()

    def model(self, name: str) -> ModelState | None:
        """The model that a client's name stands for: exact name, then alias, then the longest pattern that fits."""
        found = self._by_name.get(name) or self._aliases.get(name)
        if found is not None:
            return found
        for head, tail, model in self._patterns:
            if len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail):
                return model
        return None

    def models_priced_by(self, versions: Iterable[int]) -> set[str]:
        """The names whose price in force is one of these versions."""
        wanted = set(versions)
        return {name for name, rates in self._rates.items() if rates.version in wanted}

    def apply(self, change: SnapshotChange) -> None:
        """Take over what was read anew, in one step."""
        if self._unseen is not None:
            self._unseen.note(change)
        _replace(self.organizations, change.organizations)
        _replace(self.upstreams, change.upstreams)
        for key_id, key in change.keys.items():
            for fingerprint in self._keys.drop(key_id) if key is None else self._keys.put(key):
                self._recent.pop(fingerprint, None)
                self._before.pop(fingerprint, None)
        if change.models or change.rates:
            _replace(self._models, change.models)
            _replace(self._rates, change.rates)
            self._offer(change)
        self.version += 1

    def branch(self, *, anew: bool = False) -> "Snapshot":
        """A copy to bring up to date piece by piece. `anew`: with everything, and `drop_unseen` at the end."""
        made = Snapshot()
        made.version = self.version
        made.organizations, made.upstreams = self.organizations.copy(), self.upstreams.copy()
        made._models, made._rates = self._models.copy(), self._rates.copy()
        made._offered = self._offered.copy()
        made._by_name, made._aliases, made._patterns = self._by_name, self._aliases, self._patterns
        made._keys = self._keys.branch(anew=anew)
        made._unseen = Unseen(self) if anew else None
        return made

    def drop_unseen(self) -> Iterator[None]:
        """Forget what was not read anew since the branching, in steps."""
        unseen, self._unseen = self._unseen, None
        if unseen is not None:
            self.apply(unseen.gone())
        yield from self._keys.drop_unseen()

    def become(self, branch: "Snapshot") -> Iterator[None]:
        """Take over a branch of this snapshot, in one step. Gives the steps that free what is left over."""
        left_over, recent = self._keys, [self._recent, self._before]
        self.organizations, self.upstreams = branch.organizations, branch.upstreams
        self._models, self._rates, self._offered = branch._models, branch._rates, branch._offered
        self._by_name, self._aliases, self._patterns = branch._by_name, branch._aliases, branch._patterns
        self._keys = branch._keys
        self._keys.settle()
        self._recent, self._before = {}, {}
        self.version = max(self.version, branch.version) + 1
        return _freed(left_over, recent)

    def free(self) -> Iterator[None]:
        """Free a branch that came to nothing, in steps."""
        return self._keys.free()

    def _offer(self, change: SnapshotChange) -> None:
        """Put what changed of models and prices together, and index what is on offer."""
        named = {model.id for model in self._models.values() if model.name in change.rates}
        for model_id in change.models.keys() | named:
            model = self._models.get(model_id)
            if model is None or not model.enabled:
                self._offered.pop(model_id, None)
            else:
                offered = replace(model, rates=self._rates.get(model.name))
                if self._offered.get(model_id) != offered:
                    self._offered[model_id] = offered
        self._index_models()

    def _index_models(self) -> None:
        on_offer = sorted(self._offered.values(), key=lambda model: model.name)
        self._by_name = {model.name: model for model in on_offer}
        self._aliases = {}
        self._patterns = []
        for model in on_offer:
            for alias in model.aliases:
                if "*" in alias:
                    head, _, tail = alias.partition("*")
                    self._patterns.append((head, tail, model))
                else:
                    self._aliases.setdefault(alias, model)
        self._patterns.sort(key=lambda entry: (-len(entry[0]) - len(entry[1]), entry[2].name))


class Unseen:
    """What a snapshot held, but for its keys, and a branch of it has not read anew yet."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._organizations = set(snapshot.organizations)
        self._upstreams = set(snapshot.upstreams)
        self._models = set(snapshot._models)
        self._rates = set(snapshot._rates)

    def note(self, change: SnapshotChange) -> None:
        self._organizations.difference_update(change.organizations)
        self._upstreams.difference_update(change.upstreams)
        self._models.difference_update(change.models)
        self._rates.difference_update(change.rates)

    def gone(self) -> SnapshotChange:
        return SnapshotChange(
            organizations=dict.fromkeys(self._organizations),
            upstreams=dict.fromkeys(self._upstreams),
            models=dict.fromkeys(self._models),
            rates=dict.fromkeys(self._rates),
        )


def _freed(keys: KeyTable, recent: list[dict[bytes, KeyState]]) -> Iterator[None]:
    yield from keys.free()
    for made in recent:
        while made:
            for fingerprint in list(islice(made, 100)):
                del made[fingerprint]
            yield


def _replace(into: dict[K, V], changes: Mapping[K, V | None]) -> None:
    for row_id, value in changes.items():
        if value is None:
            into.pop(row_id, None)
        elif into.get(row_id) != value:
            into[row_id] = value
