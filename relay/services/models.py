"""Models on offer and their routes: made, changed, switched on and off. Prices are `billing.prices`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import transaction

from accounts.errors import Conflict, Invalid
from accounts.permissions import Acting, Permission, require
from accounts.services.constraints import refusing
from accounts.services.text import checked_name
from relay.models import Kind, Model, Route, Upstream

__all__ = [
    "ModelTerms",
    "RouteTerms",
    "check_terms",
    "save_model",
    "set_model_enabled",
    "set_routes",
    "terms_of",
]

# What a request may name; more is no model's window or answer.
MOST_TOKENS = 100_000_000
MOST_RANK = 1_000_000


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """What a model is. An alias may hold one `*`."""

    aliases: tuple[str, ...] = ()
    kind: str = Kind.CHAT
    context_tokens: int = 131_072
    hold_output_tokens: int = 8_192
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class RouteTerms:
    """Where a model's calls may go. Of the lowest `priority` first; `weight` shares within one."""

    upstream: Upstream = field(repr=False)
    upstream_model: str
    priority: int = 0
    weight: int = 1


def terms_of(model: Model) -> ModelTerms:
    """The terms of a model."""
    return ModelTerms(
        tuple(model.aliases), model.kind, model.context_tokens, model.hold_output_tokens, model.enabled
    )


@transaction.atomic
def save_model(*, acting: Acting, name: str, terms: ModelTerms, model: Model | None = None) -> Model:
    """Make a model of this name, or put an existing one under these terms. Takes an operator.

    Raises Invalid for values that cannot be, Conflict if another model has the name or an alias.
    """
    require(acting, Permission.OPERATE)
    name = checked_name(name, longest=200)
    check_terms(name, terms)
    model = model or Model()
    names = {name, *terms.aliases}
    for other in Model.objects.exclude(pk=model.pk).only("name", "aliases"):
        for taken in names & {other.name, *other.aliases}:
            raise Conflict(
                "name" if taken == name else "aliases", f"{taken} is a name of {other.name} already."
            )
    model.name = name
    model.aliases = list(terms.aliases)
    model.kind = terms.kind
    model.context_tokens = terms.context_tokens
    model.hold_output_tokens = terms.hold_output_tokens
    model.enabled = terms.enabled
    with refusing({"relay_model_name_key": Conflict("name", f"There is a model named {name} already.")}):
        model.save()
    return model


@transaction.atomic
def set_model_enabled(*, acting: Acting, model: Model, enabled: bool) -> Model:
    """Put the model on offer, or take it off. Takes an operator. Idempotent."""
    require(acting, Permission.OPERATE)
    Model.objects.filter(pk=model.pk).exclude(enabled=enabled).update(enabled=enabled)
    model.refresh_from_db()
    return model


@transaction.atomic
def set_routes(*, acting: Acting, model: Model, routes: Sequence[RouteTerms]) -> list[str]:
    """Give the model exactly these routes; returns a line for each change. Takes an operator.

    Raises Invalid for values that cannot be, or for the same upstream and name there twice.
    """
    require(acting, Permission.OPERATE)
    wanted: dict[tuple[int, str], RouteTerms] = {}
    for terms in routes:
        if not 0 <= terms.priority <= MOST_RANK or not 1 <= terms.weight <= MOST_RANK:
            raise Invalid("routes", "A priority is a whole number from 0, a weight one from 1.")
        key = (terms.upstream.pk, checked_name(terms.upstream_model, field="upstream_model", longest=200))
        if key in wanted:
            raise Invalid("routes", f"The route to {terms.upstream_model} is there twice.")
        wanted[key] = terms
    lines = []
    for route in Route.objects.filter(model=model).select_related("upstream"):
        kept = wanted.pop((route.upstream_id, route.upstream_model), None)
        if kept is None:
            lines.append(f"- route to {route.upstream.name} as {route.upstream_model}")
            route.delete()
        elif (route.priority, route.weight, route.enabled) != (kept.priority, kept.weight, True):
            lines.append(f"~ route to {route.upstream.name} as {route.upstream_model}")
            route.priority, route.weight, route.enabled = kept.priority, kept.weight, True
            route.save(update_fields=["priority", "weight", "enabled"])
    for (_, upstream_model), terms in wanted.items():
        lines.append(f"+ route to {terms.upstream.name} as {upstream_model}")
        Route.objects.create(
            model=model,
            upstream=terms.upstream,
            upstream_model=upstream_model,
            priority=terms.priority,
            weight=terms.weight,
        )
    return lines


def check_terms(name: str, terms: ModelTerms) -> None:
    """Raise Invalid for the first value that cannot be."""
    if terms.kind not in Kind.values:
        raise Invalid("kind", f"A kind is one of {', '.join(Kind.values)}.")
    if "*" in name:
        raise Invalid("name", "A * stands in aliases only.")
    for alias in terms.aliases:
        if alias != checked_name(alias, field="alias", longest=200) or alias.count("*") > 1 or alias == "*":
            raise Invalid("aliases", f"{alias!r}: an alias holds at most one *, and more than it.")
    if len(set(terms.aliases)) != len(terms.aliases):
        raise Invalid("aliases", "An alias is there twice.")
    for field_name, tokens in (
        ("context_tokens", terms.context_tokens),
        ("hold_output_tokens", terms.hold_output_tokens),
    ):
        if not 1 <= tokens <= MOST_TOKENS:
            raise Invalid(field_name, f"A number of tokens is from 1 to {MOST_TOKENS:,}.")
