"""Upstreams: made, changed, switched on and off. Credentials are sealed before they reach the database."""

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from django.conf import settings
from django.db import transaction

from accounts.errors import Conflict, Invalid
from accounts.permissions import Acting, Permission, require
from accounts.services.constraints import refusing
from accounts.services.text import checked_name
from billing.pricing import FACTOR_DIGITS, scaled
from relay.models import Protocol, Upstream
from relay.state.sealing import SealError, is_sealed_with_newest, seal, unseal, upstream_subject
from relay.upstreams.address import is_local_name, is_public
from relay.upstreams.endpoint import Endpoint

__all__ = [
    "TIMEOUTS",
    "UpstreamTerms",
    "check_terms",
    "credential_is",
    "save_upstream",
    "set_upstream_enabled",
    "terms_of",
]

TIMEOUTS = ("connect_s", "first_token_s", "idle_s", "total_s")
# A day: longer than any answer; a greater number is a slip of the unit.
LONGEST_TIMEOUT_S = 86_400
MOST_MULTIPLIER = 1_000
# RFC 9110, 5.6.2 and 5.5: a token, and visible text with inner spaces.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]{0,1998}[\x21-\x7e])?|")
# Decided by the relay for each call: an upstream's own value would break the framing or leak a credential.
_OWN_HEADERS = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer",
    "x-yizhan-hop",
})  # fmt: skip
_CREDENTIAL = re.compile(r"[\x21-\x7e]{1,4000}")


@dataclass(frozen=True, slots=True)
class UpstreamTerms:
    """One account at one provider's address. Timeouts that are not given have their defaults."""

    protocol: str
    base_url: str
    credential: str = field(repr=False)
    enabled: bool = True
    proxy: str | None = field(default=None, repr=False)
    cost_multiplier: Decimal = Decimal(1)
    timeouts: Mapping[str, float] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_private: bool = False
    probe: bool = True


def terms_of(upstream: Upstream) -> UpstreamTerms:
    """The terms of an upstream, its credential opened. Raises SealError if no key opens it."""
    clear = unseal(
        bytes(upstream.credential_sealed), settings.FIELD_KEYS, associated=upstream_subject(upstream.name)
    )
    return UpstreamTerms(
        protocol=upstream.protocol,
        base_url=upstream.base_url,
        credential=clear.decode(),
        enabled=upstream.enabled,
        proxy=upstream.proxy,
        cost_multiplier=upstream.cost_multiplier,
        timeouts=upstream.timeouts,
        extra_headers=upstream.extra_headers,
        allow_private=upstream.allow_private,
        probe=upstream.probe,
    )


def credential_is(upstream: Upstream, clear: str) -> bool:
    """Whether this is the stored credential, sealed under the newest key. One that no key opens is none."""
    sealed = bytes(upstream.credential_sealed)
    try:
        stored = unseal(sealed, settings.FIELD_KEYS, associated=upstream_subject(upstream.name))
    except SealError:
        return False
    return stored == clear.encode() and is_sealed_with_newest(sealed, settings.FIELD_KEYS)


@transaction.atomic
def save_upstream(
    *, acting: Acting, name: str, terms: UpstreamTerms, upstream: Upstream | None = None
) -> Upstream:
    """Make an upstream of this name, or put an existing one under these terms. Takes an operator.

    Raises Invalid for values that cannot be, Conflict if another upstream has the name.
    """
    require(acting, Permission.OPERATE)
    name = checked_name(name)
    check_terms(terms)
    upstream = upstream or Upstream()
    if upstream.pk is None or upstream.name != name or not credential_is(upstream, terms.credential):
        upstream.credential_sealed = seal(
            terms.credential.encode(), settings.FIELD_KEYS, associated=upstream_subject(name)
        )
    upstream.name = name
    upstream.protocol = terms.protocol
    upstream.base_url = terms.base_url
    upstream.enabled = terms.enabled
    upstream.proxy = terms.proxy
    upstream.cost_multiplier = terms.cost_multiplier
    upstream.timeouts = dict(terms.timeouts)
    upstream.extra_headers = dict(terms.extra_headers)
    upstream.allow_private = terms.allow_private
    upstream.probe = terms.probe
    taken = Conflict("name", f"There is an upstream named {name} already.")
    with refusing({"relay_upstream_name_key": taken}):
        upstream.save()
    return upstream


@transaction.atomic
def set_upstream_enabled(*, acting: Acting, upstream: Upstream, enabled: bool) -> Upstream:
    """Let calls go to the upstream, or not. Takes an operator. Idempotent."""
    require(acting, Permission.OPERATE)
    Upstream.objects.filter(pk=upstream.pk).exclude(enabled=enabled).update(enabled=enabled)
    upstream.refresh_from_db()
    return upstream


def check_terms(terms: UpstreamTerms) -> None:
    """Raise Invalid for the first value that cannot be."""
    if terms.protocol not in Protocol.values:
        raise Invalid("protocol", f"A protocol is one of {', '.join(Protocol.values)}.")
    _check_address(terms)
    if not _CREDENTIAL.fullmatch(terms.credential):
        raise Invalid("credential", "A credential has 1 to 4,000 visible ASCII characters and no spaces.")
    try:
        scaled(terms.cost_multiplier, FACTOR_DIGITS)
    except ValueError as exc:
        raise Invalid("cost_multiplier", f"The cost multiplier is {exc}.") from exc
    if terms.cost_multiplier > MOST_MULTIPLIER:
        raise Invalid("cost_multiplier", f"A cost multiplier above {MOST_MULTIPLIER:,} is taken for a slip.")
    for name, seconds in terms.timeouts.items():
        if name not in TIMEOUTS or not 0 < seconds <= LONGEST_TIMEOUT_S:
            raise Invalid(f"timeouts.{name}", "A timeout is above 0 and at most a day, in seconds.")
    for name, value in terms.extra_headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise Invalid(f"extra_headers.{name}", "This is no header that HTTP can carry.")
        if name.lower() in _OWN_HEADERS:
            raise Invalid(f"extra_headers.{name}", "This header is the relay's own to set.")


def _check_address(terms: UpstreamTerms) -> None:
    """Addresses written in the URL are judged here, names once they are resolved, at every connection."""
    try:
        endpoint = Endpoint.parse(terms.base_url, allow_private=terms.allow_private)
    except ValueError as exc:
        raise Invalid("base_url", str(exc)) from exc
    if len(terms.base_url) > 500:
        raise Invalid("base_url", "The base URL is longer than 500 characters.")
    try:
        Endpoint.parse(terms.base_url, allow_private=terms.allow_private, proxy=terms.proxy)
    except ValueError as exc:
        raise Invalid("proxy", str(exc)) from exc
    if terms.allow_private:
        return
    literal = _literal(endpoint.host)
    if is_local_name(endpoint.host) if literal is None else not is_public(literal):
        raise Invalid("base_url", f"{endpoint.host} is a private address: it needs allow_private: true.")


def _literal(host: str) -> str | None:
    """The address that `host` spells, also in old forms that resolvers take (127.1, 0x7f000001), or None."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
