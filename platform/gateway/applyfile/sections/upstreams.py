"""`upstreams:`. One entry with several credentials is several upstreams with the same routes: `kimi-a-1`,
`kimi-a-2`.
"""

from collections.abc import Sequence
from decimal import Decimal

from accounts.errors import Invalid
from accounts.services.text import checked_name
from gateway.applyfile import later
from gateway.applyfile.declared import DeclaredUpstream
from gateway.applyfile.places import Place, Table, open_table
from gateway.applyfile.secrets import SecretMissing, SecretSource
from relay.models import Protocol
from relay.services.upstreams import TIMEOUTS, UpstreamTerms, check_terms

__all__ = ["read_upstreams"]

_FIELDS = (
    "name",
    "protocol",
    "base_url",
    "credential",
    "credentials",
    "enabled",
    "proxy",
    "cost_multiplier",
    "limits",
    "timeouts",
    "extra_headers",
    "allow_private",
    "probe",
)
_PROTOCOLS = tuple(name for name in Protocol.values if name not in later.PROTOCOLS)


def read_upstreams(
    place: Place, secrets: SecretSource
) -> tuple[tuple[DeclaredUpstream, ...], dict[str, tuple[str, ...]]]:
    """The upstreams declared, and for each name in the file the upstreams that it stands for."""
    upstreams: list[DeclaredUpstream] = []
    accounts_of: dict[str, tuple[str, ...]] = {}
    for item in place.items():
        table = open_table(item, _FIELDS, later.FIELDS["upstream"])
        name = table and _read_name(table)
        if not table or not name:
            continue
        if name in accounts_of:
            item.at("name").refuse(f"there are two upstreams named {name!r}")
            continue
        made = _read_upstream(table, name, secrets)
        accounts_of[name] = tuple(upstream.name for upstream in made)
        upstreams += made
    _refuse_same_names(upstreams)
    return tuple(upstreams), accounts_of


def _read_name(table: Table) -> str | None:
    place = table.need("name")
    name = place and place.text()
    if place and name:
        try:
            # Room for the suffix of one credential among several.
            return checked_name(name, longest=90)
        except Invalid as exc:
            place.refuse(str(exc))
    return None


def _read_upstream(table: Table, name: str, secrets: SecretSource) -> list[DeclaredUpstream]:
    protocol, base_url = table.need("protocol"), table.need("base_url")
    proxy, multiplier = table.get("proxy"), table.get("cost_multiplier")
    limits = table.get("limits")
    if limits:
        open_table(limits, (), later.FIELDS["upstream.limits"])
    values = {
        "protocol": protocol and protocol.choice(_PROTOCOLS, later.PROTOCOLS),
        "base_url": base_url and base_url.text("an address"),
        "proxy": proxy and proxy.secret(),
        "cost_multiplier": (multiplier and multiplier.factor(6)) or Decimal(1),
        "timeouts": _read_timeouts(table.get("timeouts")),
        "extra_headers": _read_headers(table.get("extra_headers"), secrets),
        **{flag: _read_flag(table, flag, default) for flag, default in _FLAGS.items()},
    }
    credentials = _read_credentials(table, secrets)
    if not values["protocol"] or not values["base_url"]:
        return []
    single = table.get("credentials") is None
    upstreams = []
    for number, (place, credential) in enumerate(credentials, start=1):
        terms = UpstreamTerms(credential=credential, **values)  # type: ignore[arg-type] # checked above
        try:
            check_terms(terms)
        except Invalid as exc:
            (place if exc.field == "credential" else table.place.at(exc.field)).refuse(str(exc))
        upstreams.append(DeclaredUpstream(name if single else f"{name}-{number}", terms, table.place))
    return upstreams


_FLAGS = {"enabled": True, "allow_private": False, "probe": True}


def _read_flag(table: Table, name: str, default: bool) -> bool:
    place = table.get(name)
    value = place.flag() if place else None
    return default if value is None else value


def _read_credentials(table: Table, secrets: SecretSource) -> list[tuple[Place, str]]:
    one, many = table.get("credential"), table.get("credentials")
    if one and many:
        many.refuse("give either credential or credentials")
        return []
    places: Sequence[Place] = many.items("a list of credentials") if many else [one] if one else []
    if not places:
        (many or table.place).refuse("needs a credential: env:NAME, file:PATH or the literal")
    found: list[tuple[Place, str]] = []
    for place in places:
        text = place.secret()
        if text is None:
            continue
        try:
            secret = secrets.resolve(text)
        except SecretMissing as exc:
            place.refuse(str(exc))
            continue
        if secret in (known for _, known in found):
            place.refuse("this credential stands here twice")
        found.append((place, secret))
    return found


def _read_timeouts(place: Place | None) -> dict[str, float]:
    table = place and open_table(place, TIMEOUTS)
    if not table:
        return {}
    read = {name: inner.seconds() for name, inner in table.fields.items() if not inner.is_null}
    return {name: seconds for name, seconds in read.items() if seconds is not None}


def _read_headers(place: Place | None, secrets: SecretSource) -> dict[str, str]:
    headers = {}
    for name, inner in place.entries() if place else []:
        text = inner.secret()
        try:
            headers[name] = secrets.resolve(text or "")
        except SecretMissing as exc:
            inner.refuse(str(exc))
    return headers


def _refuse_same_names(upstreams: list[DeclaredUpstream]) -> None:
    seen: set[str] = set()
    for upstream in upstreams:
        if upstream.name in seen:
            upstream.place.at("name").refuse(
                f"there are two upstreams named {upstream.name!r} (credentials get the names NAME-1, NAME-2)"
            )
        seen.add(upstream.name)
