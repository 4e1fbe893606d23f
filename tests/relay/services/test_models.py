from dataclasses import replace

import pytest

from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.permissions import SYSTEM, Acting
from relay.models import Model, Route, Upstream
from relay.services.models import ModelTerms, RouteTerms, save_model, set_model_enabled, set_routes, terms_of
from relay.services.upstreams import UpstreamTerms, save_upstream

pytestmark = pytest.mark.django_db


@pytest.fixture
def upstream() -> Upstream:
    return save_upstream(
        acting=SYSTEM, name="a", terms=UpstreamTerms("openai", "https://api.example.com/v1", "x")
    )


@pytest.fixture
def model() -> Model:
    return save_model(acting=SYSTEM, name="kimi", terms=ModelTerms(aliases=("moonshot-*",)))


def test_a_model_is_kept_as_it_was_given(model: Model) -> None:
    terms = ModelTerms(("k", "m-*"), "chat", 1000, 100, enabled=False)
    save_model(acting=SYSTEM, name="kimi", terms=terms, model=model)
    assert terms_of(Model.objects.get()) == terms


@pytest.mark.parametrize(
    ("name", "aliases", "field"),
    [
        ("kimi", (), "name"),
        ("moonshot-*x", (), "name"),
        ("b", ("kimi",), "aliases"),
        ("b", ("moonshot-*",), "aliases"),
    ],
)
def test_a_name_stands_for_one_model(model: Model, name: str, aliases: tuple[str, ...], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        save_model(acting=SYSTEM, name=name, terms=ModelTerms(aliases=aliases))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"kind": "shoe"}, "kind"),
        ({"aliases": ("a*b*",)}, "aliases"),
        ({"aliases": ("*",)}, "aliases"),
        ({"aliases": ("x", "x")}, "aliases"),
        ({"context_tokens": 0}, "context_tokens"),
        ({"hold_output_tokens": 10**9}, "hold_output_tokens"),
    ],
)
def test_terms_that_cannot_be_are_refused(changed: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        save_model(acting=SYSTEM, name="x", terms=replace(ModelTerms(), **changed))
    assert caught.value.field == field


def test_routes_are_set_as_a_whole_and_what_stays_keeps_its_row(model: Model, upstream: Upstream) -> None:
    first = [RouteTerms(upstream, "kimi-1"), RouteTerms(upstream, "kimi-2", priority=1, weight=5)]
    assert set_routes(acting=SYSTEM, model=model, routes=first) == [
        "+ route to a as kimi-1",
        "+ route to a as kimi-2",
    ]
    kept = Route.objects.get(upstream_model="kimi-2")
    assert set_routes(acting=SYSTEM, model=model, routes=first) == []
    changed = [RouteTerms(upstream, "kimi-2", priority=2)]
    assert set_routes(acting=SYSTEM, model=model, routes=changed) == [
        "- route to a as kimi-1",
        "~ route to a as kimi-2",
    ]
    kept.refresh_from_db()
    assert (kept.priority, kept.weight, Route.objects.count()) == (2, 1, 1)


@pytest.mark.parametrize("changed", [{"priority": -1}, {"weight": 0}, {"upstream_model": ""}])
def test_a_route_that_cannot_be_is_refused(
    model: Model, upstream: Upstream, changed: dict[str, object]
) -> None:
    with pytest.raises(Invalid):
        set_routes(acting=SYSTEM, model=model, routes=[replace(RouteTerms(upstream, "x"), **changed)])


def test_the_same_route_twice_is_refused(model: Model, upstream: Upstream) -> None:
    with pytest.raises(Invalid):
        set_routes(
            acting=SYSTEM, model=model, routes=[RouteTerms(upstream, "x"), RouteTerms(upstream, "x", 1)]
        )


def test_a_model_is_taken_off_offer_and_put_back(model: Model) -> None:
    assert not set_model_enabled(acting=SYSTEM, model=model, enabled=False).enabled
    assert set_model_enabled(acting=SYSTEM, model=model, enabled=True).enabled


def test_only_operators_touch_models(model: Model) -> None:
    nobody = Acting("ann", frozenset(), 1)
    for attempt in (
        lambda: save_model(acting=nobody, name="x", terms=ModelTerms()),
        lambda: set_model_enabled(acting=nobody, model=model, enabled=False),
        lambda: set_routes(acting=nobody, model=model, routes=[]),
    ):
        with pytest.raises(NotAllowed):
            attempt()


def test_a_name_that_another_process_took_meanwhile_is_a_conflict(model: Model) -> None:
    again = Model(name="kimi")
    with pytest.raises(Conflict):
        save_model(acting=SYSTEM, name="kimi", terms=ModelTerms(), model=again)
