"""How rows of the control plane's tables become the values of the snapshot: the SQL and the making of each value.

Raw SQL on purpose: a relay process sets up no Django. Every statement takes one parameter, the ids wanted, or NULL
for all of them.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.pricing import Rates, scaled
from relay.state.sealing import SealError, unseal
from relay.state.snapshot import KeyState, ModelState, OrganizationState, RouteState, Timeouts, UpstreamState

__all__ = [
    "KEYS",
    "KEY_BY_FINGERPRINT",
    "MODELS",
    "ORGANIZATIONS",
    "RATES",
    "UPSTREAMS",
    "key_of",
    "model_of",
    "organization_of",
    "rates_of",
    "upstream_of",
]

log = logging.getLogger(__name__)

Row = Mapping[str, Any]

ORGANIZATIONS = """
    SELECT o.id, o.name, o.currency, o.enabled, o.budget_nano, o.rpm, o.concurrency,
           COALESCE((SELECT sum(e.amount_nano)
                     FROM billing_posting p JOIN billing_ledgerentry e ON e.posting_id = p.id
                     WHERE p.organization_id = o.id AND p.kind <> 'usage' AND e.account = 'wallet'),
                    0)::bigint AS credits_nano
    FROM accounts_organization o WHERE %(ids)s::bigint[] IS NULL OR o.id = ANY(%(ids)s)
"""

_KEY_COLUMNS = """
    SELECT id, organization_id, member_id, name, fingerprint, allowed_models, scopes, expires_at, revoked_at,
           budget_nano, rpm, concurrency FROM accounts_key
"""
KEYS = (
    _KEY_COLUMNS
    + """
    WHERE (%(ids)s::bigint[] IS NULL AND (revoked_at IS NULL OR revoked_at > now() - interval '1 day'))
       OR id = ANY(%(ids)s)
"""
)
KEY_BY_FINGERPRINT = _KEY_COLUMNS + " WHERE fingerprint = ANY(%(fingerprints)s)"

UPSTREAMS = """
    SELECT id, name, protocol, base_url, credential_sealed, enabled, proxy, cost_multiplier, timeouts, extra_headers,
           allow_private FROM relay_upstream WHERE %(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s)
"""

MODELS = """
    SELECT m.id, m.name, m.aliases, m.kind, m.context_tokens, m.hold_output_tokens, m.enabled, m.created_at,
           COALESCE((SELECT json_agg(json_build_array(r.upstream_id, r.upstream_model, r.priority, r.weight)
                                     ORDER BY r.priority, r.id)
                     FROM relay_route r WHERE r.model_id = m.id AND r.enabled), '[]') AS routes
    FROM relay_model m WHERE %(ids)s::bigint[] IS NULL OR m.id = ANY(%(ids)s)
"""

RATES = """
    SELECT DISTINCT ON (model_name) id, model_name, currency, input, output, cached_input, cache_write_5m,
           cache_write_30m, cache_write_1h, read_explicit, discount
    FROM billing_price
    WHERE valid_from <= clock_timestamp()
      AND (%(ids)s::bigint[] IS NULL OR model_name IN (SELECT model_name FROM billing_price WHERE id = ANY(%(ids)s)))
    ORDER BY model_name, valid_from DESC, id DESC
"""


def organization_of(row: Row) -> OrganizationState:
    return OrganizationState(**row)


def key_of(row: Row) -> KeyState:
    models: Sequence[str] | None = row["allowed_models"]
    expires: datetime | None = row["expires_at"]
    scopes: Sequence[str] = row["scopes"]
    return KeyState(
        id=row["id"],
        organization_id=row["organization_id"],
        member_id=row["member_id"],
        name=row["name"],
        fingerprint=bytes(row["fingerprint"]),
        models=None if models is None else frozenset(models),
        may_call="call" in scopes,
        expires_at=None if expires is None else expires.timestamp(),
        revoked=row["revoked_at"] is not None,
        budget_nano=row["budget_nano"],
        rpm=row["rpm"],
        concurrency=row["concurrency"],
    )


def upstream_of(row: Row, field_keys: Sequence[bytes]) -> UpstreamState:
    """One account with its credential opened. A credential that no key opens switches the account off and is logged."""
    enabled: bool = row["enabled"]
    credential = ""
    try:
        credential = unseal(
            bytes(row["credential_sealed"]), field_keys, associated=f"upstream:{row['name']}"
        ).decode()
    except SealError as exc:
        enabled = False
        log.error("upstream %s is off: its credential cannot be opened (%s)", row["id"], exc)
    given = {name: float(value) for name, value in (row["timeouts"] or {}).items() if value is not None}
    return UpstreamState(
        id=row["id"],
        name=row["name"],
        protocol=row["protocol"],
        base_url=row["base_url"],
        allow_private=row["allow_private"],
        proxy=row["proxy"],
        credential=credential,
        extra_headers=tuple((str(name), str(value)) for name, value in (row["extra_headers"] or {}).items()),
        timeouts=Timeouts(**given),
        cost_multiplier=scaled(Decimal(row["cost_multiplier"]), 6),
        enabled=enabled,
    )


def model_of(row: Row) -> ModelState:
    routes = row["routes"] if isinstance(row["routes"], list) else json.loads(row["routes"])
    return ModelState(
        id=row["id"],
        name=row["name"],
        aliases=tuple(row["aliases"]),
        kind=row["kind"],
        context_tokens=row["context_tokens"],
        hold_output_tokens=row["hold_output_tokens"],
        enabled=row["enabled"],
        created=int(row["created_at"].timestamp()),
        routes=tuple(RouteState(*route) for route in routes),
    )


def rates_of(row: Row) -> Rates:
    return Rates.of(version=row["id"], **{name: value for name, value in row.items() if name != "id"})
