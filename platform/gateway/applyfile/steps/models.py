"""Brings models, their prices and their routes to what is declared."""

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal

from accounts.permissions import SYSTEM
from billing.prices import PriceTerms, prices_in_force, set_price
from billing.prices import terms_of as price_terms_of
from gateway.applyfile.declared import DeclaredModel, DeclaredRoute
from gateway.applyfile.outcome import Outcome, refusals_at
from relay.models import Model, Upstream
from relay.services.models import (
    ModelTerms,
    RouteTerms,
    save_model,
    set_model_enabled,
    set_routes,
    terms_of,
)

__all__ = ["apply_models", "prune_models"]


def apply_models(
    declared: tuple[DeclaredModel, ...], accounts_of: Mapping[str, tuple[str, ...]], outcome: Outcome
) -> None:
    """Make and change models; a price changes by a new version, and only if it really differs."""
    existing = {model.name: model for model in Model.objects.all()}
    upstreams = {upstream.name: upstream for upstream in Upstream.objects.all()}
    prices = {price.model_name: price_terms_of(price) for price in prices_in_force()}
    _give_up_aliases(declared, existing)
    for wanted in declared:
        routes = _routes(wanted, accounts_of, upstreams)
        with refusals_at(wanted.place):
            model = existing.get(wanted.name)
            changed = None if model is None else _changed(terms_of(model), wanted.terms)
            if model is None or changed:
                model = save_model(acting=SYSTEM, name=wanted.name, terms=wanted.terms, model=model)
                what = f": {', '.join(changed)}" if changed else ""
                outcome.lines.append(f"{'~' if changed else '+'} model {wanted.name}{what}")
            lines = set_routes(acting=SYSTEM, model=model, routes=routes)
            outcome.lines += [f"~ model {wanted.name}: {line}" for line in lines]
            price, is_new = set_price(acting=SYSTEM, model_name=wanted.name, terms=wanted.price)
            if is_new:
                difference = _price_difference(prices.get(wanted.name), wanted.price)
                outcome.lines.append(f"~ price of {wanted.name}, version {price.pk}: {difference}")


def prune_models(declared: tuple[DeclaredModel, ...], outcome: Outcome) -> None:
    """Take models off offer that the file does not name."""
    names = [model.name for model in declared]
    for model in Model.objects.filter(enabled=True).exclude(name__in=names).order_by("name"):
        set_model_enabled(acting=SYSTEM, model=model, enabled=False)
        outcome.lines.append(f"- model {model.name} (switched off)")


def _give_up_aliases(declared: tuple[DeclaredModel, ...], existing: Mapping[str, Model]) -> None:
    """Take from declared models the aliases they shall not keep, first, so that another one can have them."""
    for wanted in declared:
        model = existing.get(wanted.name)
        if model is None or set(model.aliases) <= set(wanted.terms.aliases):
            continue
        kept = [alias for alias in model.aliases if alias in wanted.terms.aliases]
        Model.objects.filter(pk=model.pk).update(aliases=kept)


def _changed(now: ModelTerms, wanted: ModelTerms) -> list[str]:
    return [f.name for f in fields(ModelTerms) if getattr(now, f.name) != getattr(wanted, f.name)]


def _routes(
    wanted: DeclaredModel, accounts_of: Mapping[str, tuple[str, ...]], upstreams: Mapping[str, Upstream]
) -> list[RouteTerms]:
    routes = []
    for route in wanted.routes:
        for name in _accounts(route, accounts_of, upstreams):
            routes.append(RouteTerms(upstreams[name], route.upstream_model, route.priority, route.weight))
    return routes


def _accounts(
    route: DeclaredRoute, accounts_of: Mapping[str, tuple[str, ...]], upstreams: Mapping[str, Upstream]
) -> list[str]:
    """The upstreams that the route's name stands for: those of the file first, else one in the database."""
    names = [name for name in accounts_of.get(route.upstream, (route.upstream,)) if name in upstreams]
    if not names:
        route.place.at("upstream").refuse(
            f"there is no upstream {route.upstream!r}, neither in this file nor in the database"
        )
    return names


def _price_difference(now: PriceTerms | None, wanted: PriceTerms) -> str:
    """What of the price changes, as `input 4 -> 5, output 16 -> 20`."""
    parts = []
    for field in fields(PriceTerms):
        new = getattr(wanted, field.name)
        old = getattr(now, field.name) if now else None
        if new == old or (now is None and (new is None or (field.name == "discount" and new == 1))):
            continue
        parts.append(
            f"{field.name} {_shown(new)}" if now is None else f"{field.name} {_shown(old)} -> {_shown(new)}"
        )
    return ", ".join(parts)


def _shown(value: Decimal | str | None) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return "none" if value is None else value
