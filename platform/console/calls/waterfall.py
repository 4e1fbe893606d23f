"""Pure. The stages of a call as bars on one time line.

Stages come from the record as milliseconds that sum to the total; zero ones may be missing. They are drawn one after
the other in the order of the walk. Each belongs to one party, so that a glance says who used the time. Positions are
percent of the total, as text with a point, ready for SVG attributes in any language.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PARTIES", "STAGES", "Bar", "Mark", "Share", "Waterfall", "draw_waterfall"]

# stage -> party, in the order in which the relay marks them (relay.metering.timing).
STAGES: dict[str, str] = {
    "queue": "relay",
    "auth": "relay",
    "receive": "client",
    "route": "relay",
    "permit": "relay",
    "failover": "upstream",
    "connect": "network",
    "send": "network",
    "upstream_wait": "upstream",
    "prefill": "upstream",
    "decode": "upstream",
    "client_write_wait": "client",
    "relay_overhead": "relay",
    "unexplained": "unexplained",
}
PARTIES = ("client", "relay", "network", "upstream", "unexplained")
# Thinner than this a bar cannot be seen: chosen, about 2 px of a bar 700 px wide.
_MIN_WIDTH = 0.3
# Two marks that lie closer than this share of the total are drawn as one.
_ONE_MOMENT = 0.005


@dataclass(frozen=True, slots=True)
class Bar:
    """One stage. `ms` is exact, `x` and `width` are percent of the total."""

    name: str
    party: str
    ms: float
    share: float
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Share:
    """What one party used of the total."""

    party: str
    ms: float
    share: float
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on the line: `ttfb`, `ttft` or `both`. `anchor` keeps its label inside the picture."""

    name: str
    ms: float
    x: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A round moment of the scale."""

    ms: float
    x: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Waterfall:
    bars: tuple[Bar, ...]
    shares: tuple[Share, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    total_ms: float


def draw_waterfall(
    stages: Mapping[str, float],
    total_ms: float,
    *,
    ttft_ms: float | None = None,
    ttfb_ms: float | None = None,
) -> Waterfall | None:
    """The picture, or None where there is nothing to draw. Unknown stages come last, as unexplained."""
    known = [(name, stages[name]) for name in STAGES if stages.get(name, 0) > 0]
    known += [(name, ms) for name, ms in stages.items() if name not in STAGES and ms > 0]
    scale = max(total_ms, sum(ms for _, ms in known))
    if scale <= 0 or not known:
        return None
    bars, at = [], 0.0
    for name, ms in known:
        party = STAGES.get(name, "unexplained")
        width = max(100 * ms / scale, _MIN_WIDTH)
        bars.append(
            Bar(name, party, ms, ms / scale, _percent(min(100 * at / scale, 100 - width)), _percent(width))
        )
        at += ms
    marks = [("ttfb", ttfb_ms), ("ttft", ttft_ms)]
    if ttft_ms is not None and ttfb_ms is not None and abs(ttft_ms - ttfb_ms) < _ONE_MOMENT * scale:
        marks = [("both", ttft_ms)]
    return Waterfall(
        bars=tuple(bars),
        shares=_shares(known, scale),
        marks=tuple(_mark(name, ms, scale) for name, ms in marks if ms is not None and 0 <= ms <= scale),
        ticks=_ticks(scale),
        total_ms=scale,
    )


def _shares(known: list[tuple[str, float]], scale: float) -> tuple[Share, ...]:
    sums = dict.fromkeys(PARTIES, 0.0)
    for name, ms in known:
        sums[STAGES.get(name, "unexplained")] += ms
    shares, at = [], 0.0
    for party, ms in sums.items():
        if ms > 0:
            shares.append(
                Share(party, ms, ms / scale, _percent(100 * at / scale), _percent(100 * ms / scale))
            )
            at += ms
    return tuple(shares)


def _mark(name: str, ms: float, scale: float) -> Mark:
    share = ms / scale
    return Mark(name, ms, _percent(100 * share), "end" if share > 0.5 else "start")


def _ticks(scale: float) -> tuple[Tick, ...]:
    """Round steps, three to six of them, without the one that would touch the right edge."""
    power: float = 10.0 ** math.floor(math.log10(scale / 3))
    step = max(factor * power for factor in (1, 2, 2.5, 5) if factor * power <= scale / 3)
    moments = [
        round(index * step, 9) for index in range(int(scale / step) + 1) if index * step < 0.97 * scale
    ]
    return tuple(Tick(ms, _percent(100 * ms / scale), "start" if ms == 0 else "middle") for ms in moments)


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"
