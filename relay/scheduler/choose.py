"""Pure. The ordered candidates of one call.

Priority classes come first, lowest number first; inside a class the order is drawn by weight, so that a route of
weight 3 leads three times as often as one of weight 1. Randomness is passed in. Each upstream stands once in a call.
"""

from collections.abc import Mapping
from typing import Protocol

from relay.state.snapshot import ModelState, RouteState, UpstreamState

__all__ = ["Candidate", "Draw", "order_candidates"]

Candidate = tuple[RouteState, UpstreamState]


class Draw(Protocol):
    """A source of randomness, as `random.Random` is one."""

    def random(self) -> float: ...


def order_candidates(
    model: ModelState, upstreams: Mapping[int, UpstreamState], *, protocol: str, rng: Draw
) -> list[Candidate]:
    """The routes whose upstream is on and speaks `protocol`, in the order in which to try them. May be empty."""
    if len(model.routes) == 1:
        route = model.routes[0]
        only = upstreams.get(route.upstream_id)
        return [(route, only)] if only is not None and only.enabled and only.protocol == protocol else []
    usable = [
        (route, upstream)
        for route in model.routes
        if (upstream := upstreams.get(route.upstream_id)) is not None
        and upstream.enabled
        and upstream.protocol == protocol
    ]
    if len(usable) > 1:
        # Weighted shuffle (Efraimidis and Spirakis 2006): the key u^(1/w) sorts like a draw without replacement.
        usable.sort(key=lambda entry: (entry[0].priority, -(rng.random() ** (1 / max(1, entry[0].weight)))))
    seen: set[int] = set()
    return [entry for entry in usable if not (entry[1].id in seen or seen.add(entry[1].id))]  # type: ignore[func-returns-value]
