"""What the data plane knows: keys, organizations, models with their routes and prices, as plain values in memory.

`Snapshot` is changed only by `apply`, in one synchronous step, so that a call that looks things up without awaiting
in between sees one version. Values are immutable; a change replaces them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from billing.pricing import Rates

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


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class OrganizationState:
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
class KeyState:
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

    @property
    def is_empty(self) -> bool:
        return not (self.organizations or self.keys or self.upstreams or self.models or self.rates)


class Snapshot:
    """The whole, with the indexes that the walk needs."""

    def __init__(self) -> None:
        self.version = 0
        self.organizations: dict[int, OrganizationState] = {}
        self.upstreams: dict[int, UpstreamState] = {}
        self._keys: dict[bytes, KeyState] = {}
        self._fingerprints: dict[int, bytes] = {}
        self._models: dict[int, ModelState] = {}
        self._rates: dict[str, Rates] = {}
        self._by_name: dict[str, ModelState] = {}
        self._aliases: dict[str, ModelState] = {}
        self._patterns: list[tuple[str, str, ModelState]] = []

    def key(self, fingerprint: bytes) -> KeyState | None:
        return self._keys.get(fingerprint)

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

    def replace_all(self, whole: SnapshotChange) -> None:
        """Take over everything anew: what `whole` does not hold is gone."""
        whole.organizations |= dict.fromkeys(self.organizations.keys() - whole.organizations.keys())
        whole.upstreams |= dict.fromkeys(self.upstreams.keys() - whole.upstreams.keys())
        whole.keys |= dict.fromkeys(self._fingerprints.keys() - whole.keys.keys())
        whole.models |= dict.fromkeys(self._models.keys() - whole.models.keys())
        whole.rates |= dict.fromkeys(self._rates.keys() - whole.rates.keys())
        self.apply(whole)

    def apply(self, change: SnapshotChange) -> None:
        """Take over what was read anew, in one step."""
        _replace(self.organizations, change.organizations)
        _replace(self.upstreams, change.upstreams)
        for key_id, key in change.keys.items():
            old = self._fingerprints.pop(key_id, None)
            if old is not None:
                self._keys.pop(old, None)
            if key is not None:
                self._keys[key.fingerprint] = key
                self._fingerprints[key_id] = key.fingerprint
        if change.models or change.rates:
            _replace(self._models, change.models)
            _replace(self._rates, change.rates)
            self._index_models()
        self.version += 1

    def _index_models(self) -> None:
        on_offer = [
            replace(model, rates=self._rates.get(model.name))
            for model in self._models.values()
            if model.enabled
        ]
        on_offer.sort(key=lambda model: model.name)
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


def _replace(into: dict[K, V], changes: Mapping[K, V | None]) -> None:
    for row_id, value in changes.items():
        if value is None:
            into.pop(row_id, None)
        else:
            into[row_id] = value
