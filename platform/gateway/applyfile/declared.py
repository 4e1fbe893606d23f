"""Pure values: what an apply file declares, each with the place where errors about it belong."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from accounts.limits import Limits
from billing.prices import PriceTerms
from gateway.applyfile.places import Place
from relay.services.models import ModelTerms
from relay.services.upstreams import UpstreamTerms

__all__ = [
    "Declared",
    "DeclaredKey",
    "DeclaredMember",
    "DeclaredModel",
    "DeclaredOrganization",
    "DeclaredRoute",
]
__all__ += ["DeclaredUpstream"]


@dataclass(frozen=True, slots=True)
class DeclaredUpstream:
    name: str
    terms: UpstreamTerms
    place: Place


@dataclass(frozen=True, slots=True)
class DeclaredRoute:
    upstream: str
    upstream_model: str
    priority: int
    weight: int
    place: Place


@dataclass(frozen=True, slots=True)
class DeclaredModel:
    name: str
    terms: ModelTerms
    price: PriceTerms
    routes: tuple[DeclaredRoute, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class DeclaredMember:
    email: str
    role: str
    password: str | None = field(repr=False)
    place: Place


@dataclass(frozen=True, slots=True)
class DeclaredKey:
    name: str
    value: str | None = field(repr=False)
    member: str | None
    models: tuple[str, ...] | None
    scopes: tuple[str, ...]
    limits: Limits
    place: Place


@dataclass(frozen=True, slots=True)
class DeclaredOrganization:
    """`currency` None: not said, and then there is no opening credit either."""

    name: str
    title: str
    currency: str | None
    opening_nano: int
    limits: Limits
    members: tuple[DeclaredMember, ...]
    keys: tuple[DeclaredKey, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Declared:
    """A whole file. A section that is None is not in the file: pruning leaves what belongs to it alone.

    `accounts_of` names the upstreams that each name in a route stands for: several where it has several
    credentials.
    """

    upstreams: tuple[DeclaredUpstream, ...] | None
    accounts_of: Mapping[str, tuple[str, ...]]
    models: tuple[DeclaredModel, ...] | None
    organizations: tuple[DeclaredOrganization, ...] | None
