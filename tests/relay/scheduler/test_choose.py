"""The order of candidates: priority classes first, by weight inside a class, each upstream once."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.scheduler.choose import order_candidates
from relay.state.snapshot import ModelState, RouteState, Timeouts, UpstreamState


def upstream(number: int, *, enabled: bool = True, protocol: str = "openai") -> UpstreamState:
    return UpstreamState(
        id=number, name=f"up-{number}", protocol=protocol, base_url="http://x", allow_private=False, proxy=None,
        credential="", extra_headers=(), timeouts=Timeouts(), cost_multiplier=1_000_000, enabled=enabled,
    )  # fmt: skip


def order(routes: list[RouteState], upstreams: list[UpstreamState], rng: random.Random) -> list[int]:
    model = ModelState(
        id=1, name="m", aliases=(), kind="chat", context_tokens=1, hold_output_tokens=1, enabled=True, created=0,
        routes=tuple(routes),
    )  # fmt: skip
    found = order_candidates(model, {one.id: one for one in upstreams}, protocol="openai", rng=rng)
    assert all(route.upstream_id == chosen.id for route, chosen in found)
    return [chosen.id for _, chosen in found]


def route(number: int, priority: int = 0, weight: int = 1, name: str = "x") -> RouteState:
    return RouteState(number, name, priority, weight)


UPSTREAMS = [upstream(number) for number in range(6)]


def test_it_works() -> None:
    routes = [route(2, 5), route(1, 0), route(3, 9)]
    assert order(routes, UPSTREAMS, random.Random(1)) == [1, 2, 3]


def test_upstreams_that_are_off_unknown_or_speak_otherwise_are_left_out() -> None:
    upstreams = [upstream(1, enabled=False), upstream(2, protocol="anthropic"), upstream(3)]
    assert order([route(1), route(2), route(3), route(4)], upstreams, random.Random(1)) == [3]


def test_no_route_is_no_candidate() -> None:
    assert order([], UPSTREAMS, random.Random(1)) == []


def test_an_upstream_stands_once_at_its_best_place() -> None:
    routes = [route(1, 3, name="worse"), route(1, 0, name="better"), route(2, 1)]
    assert order(routes, UPSTREAMS, random.Random(1)) == [1, 2]


@pytest.mark.parametrize("weights", [(1, 1), (1, 3), (5, 1), (1, 2, 7), (10, 10, 20)])
def test_weights_share_the_lead(weights: tuple[int, ...]) -> None:
    rng, draws = random.Random(7), 4000
    routes = [route(number, 0, weight) for number, weight in enumerate(weights)]
    leads = Counter(order(routes, UPSTREAMS, rng)[0] for _ in range(draws))
    for number, weight in enumerate(weights):
        assert leads[number] / draws == pytest.approx(weight / sum(weights), abs=0.03)


def test_a_weight_of_zero_counts_as_one() -> None:
    rng = random.Random(3)
    leads = Counter(order([route(1, 0, 0), route(2, 0, 1)], UPSTREAMS, rng)[0] for _ in range(1000))
    assert min(leads[1], leads[2]) > 400


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 9)), max_size=12), st.integers()
)
def test_classes_come_in_order_and_each_upstream_once(
    given_routes: list[tuple[int, int, int]], seed: int
) -> None:
    routes = [route(*each) for each in given_routes]
    found = order(routes, UPSTREAMS, random.Random(seed))
    assert sorted(found) == sorted({one.upstream_id for one in routes})
    best = {number: min(one.priority for one in routes if one.upstream_id == number) for number in found}
    assert [best[number] for number in found] == sorted(best[number] for number in found)
