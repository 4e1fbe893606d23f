"""Pure. The two pictures of the overview as numbers for SVG: bars of calls and lines of TTFT, one step an hour.

The drawing is 240 wide (ten units an hour) and `HEIGHT` high, stretched by the page; labels stand outside of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from console.overview.queries import Figures

__all__ = ["HEIGHT", "CallBar", "CallChart", "TtftChart", "draw_calls", "draw_ttft"]

HEIGHT = 100
STEP = 10
_GAP = 2
# A bar that stands for any call at all can be seen.
_MIN_BAR = 1.5


@dataclass(frozen=True, slots=True)
class CallBar:
    """One hour: the whole bar and the part of it that is errors, from the bottom."""

    start: datetime
    figures: Figures
    x: float
    width: float
    y: float
    height: float
    error_y: float
    error_height: float


@dataclass(frozen=True, slots=True)
class CallChart:
    bars: tuple[CallBar, ...]
    top: int


@dataclass(frozen=True, slots=True)
class TtftChart:
    """Paths of p50 and p95, broken where an hour has no figure."""

    p50: str
    p95: str
    top_ms: float


def draw_calls(hours: Sequence[Figures], start: datetime) -> CallChart:
    top = round_up(max((figures.calls for figures in hours), default=0))
    bars = []
    for index, figures in enumerate(hours):
        height = max(HEIGHT * figures.calls / top, _MIN_BAR) if figures.calls else 0.0
        errors = height * figures.errors / figures.calls if figures.calls else 0.0
        bars.append(
            CallBar(
                start=start + timedelta(hours=index),
                figures=figures,
                x=index * STEP + _GAP / 2,
                width=STEP - _GAP,
                y=round(HEIGHT - height, 2),
                height=round(height - errors, 2),
                error_y=round(HEIGHT - errors, 2),
                error_height=round(errors, 2),
            )
        )
    return CallChart(tuple(bars), top)


def draw_ttft(hours: Sequence[Figures]) -> TtftChart | None:
    """None where no hour has a first token."""
    highest = max((figures.ttft_p95_ms or 0.0 for figures in hours), default=0.0)
    if highest <= 0:
        return None
    top = float(round_up(highest))
    return TtftChart(
        p50=_path([figures.ttft_p50_ms for figures in hours], top),
        p95=_path([figures.ttft_p95_ms for figures in hours], top),
        top_ms=top,
    )


def round_up(value: float) -> int:
    """The next of 1, 2, 5 times a power of ten: the top of a scale.

    >>> [round_up(value) for value in (0, 3, 10, 87, 1300)]
    [1, 5, 10, 100, 2000]
    """
    power = 1
    while True:
        for factor in (1, 2, 5):
            if value <= factor * power:
                return factor * power
        power *= 10


def _path(values: Sequence[float | None], top: float) -> str:
    """Moves and lines through the hours' middles; a lone hour is a stroke as wide as its hour."""
    commands, drawing = [], False
    for index, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        x, y = index * STEP + STEP / 2, round(HEIGHT - HEIGHT * value / top, 2)
        lone = not drawing and (index + 1 == len(values) or values[index + 1] is None)
        commands.append(f"M{x - 2} {y}H{x + 2}" if lone else f"{'L' if drawing else 'M'}{x} {y}")
        drawing = True
    return "".join(commands)
