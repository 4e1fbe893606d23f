"""How rows of the control plane's tables become the values of the snapshot: the SQL and the making of each value.

Raw SQL on purpose: a relay process sets up no Django. There are two statements for each kind of row: `..._PAGE` for
all of them, in pages of `count` behind the row `after`, and `..._BY_ID` for those whose `ids` are given.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from billing.pricing import Rates, scaled
from relay.state.sealing import SealError, unseal
from relay.state.snapshot import KeyState, ModelState, OrganizationState, RouteState, Timeouts, UpstreamState

__all__ = [
    "KEYS_BY_FINGERPRINT",
    "KEYS_BY_ID",
    "KEYS_PAGE",
    "MODELS_BY_ID",
    "MODELS_PAGE",
    "NEXT_PRICE",
    "ORGANIZATIONS_BY_ID",
    "ORGANIZATIONS_PAGE",
    "RATES_OF_MODELS",
    "RATES_PAGE",
    "REPRICED",
    "UPSTREAMS_BY_ID",
    "UPSTREAMS_PAGE",
    "key_of",
    "model_of",
    "organization_of",
    "rates_of",
    "upstream_of",
]

log = logging.getLogger(__name__)

Row = Mapping[str, Any]

_ORGANIZATIONS = """
    SELECT o.id, o.name, o.currency, o.enabled, o.budget_nano, o.rpm, o.concurrency,
           COALESCE((SELECT sum(e.amount_nano)
                     FROM billing_posting p JOIN billing_ledgerentry e ON e.posting_id = p.id
                     WHERE p.organization_id = o.id AND p.kind <> 'usage' AND e.account = 'wallet'),
                    0)::bigint AS credits_nano
    FROM accounts_organization o
"""
_KEYS = """
    SELECT id, organization_id, member_id, name, fingerprint, allowed_models AS models,
           'call' = ANY(scopes) AS may_call, extract(epoch FROM expires_at)::float8 AS expires_at,
           revoked_at IS NOT NULL AS revoked, budget_nano, rpm, concurrency
    FROM accounts_key
"""
_UPSTREAMS = """
    SELECT id, name, protocol, base_url, credential_sealed, enabled, proxy, cost_multiplier, timeouts, extra_headers,
           allow_private FROM relay_upstream
"""
_MODELS = """
    SELECT m.id, m.name, m.aliases, m.kind, m.context_tokens, m.hold_output_tokens, m.enabled, m.created_at,
           COALESCE((SELECT json_agg(json_build_array(r.upstream_id, r.upstream_model, r.priority, r.weight)
                                     ORDER BY r.priority, r.id)
                     FROM relay_route r WHERE r.model_id = m.id AND r.enabled), '[]') AS routes
    FROM relay_model m
"""
_RATES = """
    SELECT DISTINCT ON (model_name) id, model_name, currency, input, output, cached_input, cache_write_5m,
           cache_write_30m, cache_write_1h, read_explicit, discount
    FROM billing_price
    WHERE valid_from <= %(at)s
"""
_NEWEST = " ORDER BY model_name, valid_from DESC, id DESC"


def _by_id(query: str, column: str = "id") -> str:
    return f"{query} WHERE {column} = ANY(%(ids)s)"


def _page(query: str, column: str = "id", *, word: str = "WHERE") -> str:
    return f"{query} {word} {column} > %(after)s ORDER BY {column} LIMIT %(count)s"


# One statement for all rows, page by page, and one for rows by their ids: a plan made for either must not be used for
# the other.
ORGANIZATIONS_PAGE, ORGANIZATIONS_BY_ID = _page(_ORGANIZATIONS, "o.id"), _by_id(_ORGANIZATIONS, "o.id")
UPSTREAMS_PAGE, UPSTREAMS_BY_ID = _page(_UPSTREAMS), _by_id(_UPSTREAMS)
MODELS_PAGE, MODELS_BY_ID = _page(_MODELS, "m.id"), _by_id(_MODELS, "m.id")
# A key that was revoked long ago is not kept in memory: whoever still sends it costs a look-up now and then.
KEYS_PAGE = _page(_KEYS + " WHERE (revoked_at IS NULL OR revoked_at > now() - interval '1 day')", word="AND")
KEYS_BY_ID = _by_id(_KEYS)
KEYS_BY_FINGERPRINT = _by_id(_KEYS, "fingerprint")
# The prices in force at a time.
RATES_PAGE = _RATES + " AND model_name > %(after)s" + _NEWEST + " LIMIT %(count)s"
RATES_OF_MODELS = _RATES + " AND model_name = ANY(%(names)s)" + _NEWEST
# The models whose price is another one, since these versions were written or came into force meanwhile.
REPRICED = """
    SELECT DISTINCT model_name FROM billing_price
    WHERE id = ANY(%(ids)s)
       OR (valid_from > %(since)s AND valid_from <= %(at)s)
"""
NEXT_PRICE = "SELECT min(valid_from) AS due FROM billing_price WHERE valid_from > %(at)s"


def organization_of(row: Row) -> OrganizationState:
    return OrganizationState(**row)


def key_of(row: Row) -> KeyState:
    models: Sequence[str] | None = row["models"]
    return KeyState(**{**row, "models": None if models is None else frozenset(models)})


def upstream_of(row: Row, field_keys: Sequence[bytes]) -> UpstreamState:
    """One account with its credential opened. A credential that no key opens switches the account off and is logged."""
    enabled: bool = row["enabled"]
    credential = ""
    try:
        credential = unseal(
            row["credential_sealed"], field_keys, associated=f"upstream:{row['name']}"
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
