"""`models:` with their prices and routes."""

from decimal import Decimal

from accounts.errors import Invalid
from accounts.services.text import checked_name
from billing.models import RATE_FIELDS
from billing.prices import PriceTerms
from billing.prices import check_terms as check_price
from billing.pricing import FACTOR_DIGITS, RATE_DIGITS
from gateway.applyfile import later
from gateway.applyfile.declared import DeclaredModel, DeclaredRoute
from gateway.applyfile.places import Place, Table, open_table
from relay.models import Kind
from relay.services.models import MOST_RANK, MOST_TOKENS, ModelTerms, check_terms

__all__ = ["read_models"]

_FIELDS = ("name", "aliases", "kind", "context_tokens", "hold_output_tokens", "price", "routes")
_PRICE_FIELDS = ("currency", *RATE_FIELDS, "discount")
_ROUTE_FIELDS = ("upstream", "upstream_model", "priority", "weight")
_USUAL = ModelTerms()
_KINDS = tuple(kind for kind in Kind.values if kind not in later.KINDS)


def read_models(place: Place) -> tuple[DeclaredModel, ...]:
    """The models declared. A name or alias that two of them claim is refused."""
    models: list[DeclaredModel] = []
    owners: dict[str, DeclaredModel] = {}
    for item in place.items():
        table = open_table(item, _FIELDS, later.FIELDS["model"])
        model = table and _read_model(table)
        if not model:
            continue
        for claimed in (model.name, *model.terms.aliases):
            owner = owners.setdefault(claimed, model)
            if owner is not model:
                field = "name" if claimed == model.name else "aliases"
                item.at(field).refuse(f"{claimed!r} is a name of the model {owner.name!r} already")
        models.append(model)
    return tuple(models)


def _read_model(table: Table) -> DeclaredModel | None:
    name_place, kind = table.need("name"), table.get("kind")
    price, aliases, routes = table.need("price"), table.get("aliases"), table.get("routes")
    name = name_place and name_place.text()
    kind_name = (kind and kind.choice(_KINDS, later.KINDS)) or Kind.CHAT
    terms = ModelTerms(
        aliases=tuple(alias for item in (aliases.items() if aliases else []) if (alias := item.text())),
        kind=kind_name,
        context_tokens=_read_tokens(table, "context_tokens", _USUAL.context_tokens),
        hold_output_tokens=_read_tokens(table, "hold_output_tokens", _USUAL.hold_output_tokens),
    )
    price_terms = price and _read_price(price, has_output=kind_name != Kind.EMBEDDING)
    declared_routes = _read_routes(routes, name or "")
    if not name or not price_terms:
        return None
    try:
        name = checked_name(name, longest=200)
        check_terms(name, terms)
    except Invalid as exc:
        table.place.at(exc.field).refuse(str(exc))
    return DeclaredModel(name, terms, price_terms, declared_routes, table.place)


def _read_tokens(table: Table, name: str, default: int) -> int:
    place = table.get(name)
    tokens = place.whole(1, MOST_TOKENS, "a whole number of tokens above 0") if place else None
    return tokens or default


def _read_price(place: Place, *, has_output: bool) -> PriceTerms | None:
    """The price declared. What has no output needs no price for it."""
    table = open_table(place, _PRICE_FIELDS, later.FIELDS["price"])
    if not table:
        return None
    currency_place = table.need("currency")
    rates: dict[str, Decimal | None] = {}
    needed = ("input", "output") if has_output else ("input",)
    for name in RATE_FIELDS:
        rate = (table.need if name in needed else table.get)(name)
        rates[name] = rate.money(RATE_DIGITS) if rate else None
    if not has_output and rates["output"] is None:
        rates["output"] = Decimal(0)
    discount_place = table.get("discount")
    discount = discount_place.factor(FACTOR_DIGITS) if discount_place else Decimal(1)
    currency = currency_place and currency_place.text("a currency such as CNY")
    if not currency or rates["input"] is None or rates["output"] is None or discount is None:
        return None
    terms = PriceTerms(currency=currency, discount=discount, **rates)  # type: ignore[arg-type] # checked above
    try:
        check_price(terms)
    except Invalid as exc:
        place.at(exc.field).refuse(str(exc))
    return terms


def _read_routes(place: Place | None, model: str) -> tuple[DeclaredRoute, ...]:
    routes = []
    seen: set[tuple[str, str]] = set()
    for item in place.items() if place else []:
        table = open_table(item, _ROUTE_FIELDS)
        upstream_place = table and table.need("upstream")
        upstream = upstream_place and upstream_place.text("the name of an upstream")
        if not table or not upstream:
            continue
        name_there = table.get("upstream_model")
        upstream_model = (name_there.text() if name_there else model) or model
        if (upstream, upstream_model) in seen:
            item.refuse(f"there are two routes to {upstream!r} as {upstream_model!r}")
        seen.add((upstream, upstream_model))
        priority = _read_rank(table, "priority", 0, "a whole number from 0")
        weight = _read_rank(table, "weight", 1, "a whole number above 0")
        routes.append(DeclaredRoute(upstream, upstream_model, priority, weight, item))
    return tuple(routes)


def _read_rank(table: Table, name: str, least: int, must: str) -> int:
    """`least` is the default too."""
    place = table.get(name)
    value = place.whole(least, MOST_RANK, must) if place else None
    return least if value is None else value
