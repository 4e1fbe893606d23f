import doctest
from datetime import UTC, datetime

from console.overview import charts
from console.overview.queries import Figures

START = datetime(2026, 12, 1, tzinfo=UTC)
QUIET = Figures()


def test_the_doctests_hold():
    assert doctest.testmod(charts).failed == 0


def test_bars_stand_on_the_ground_and_errors_at_their_foot():
    chart = charts.draw_calls([QUIET, Figures(calls=50, errors=25), Figures(calls=100)], START)

    quiet, half, full = chart.bars
    assert chart.top == 100
    assert (quiet.height, quiet.error_height) == (0, 0)
    assert (half.y, half.height, half.error_y, half.error_height) == (50, 25, 75, 25)
    assert (full.y, full.height) == (0, 100)


def test_a_single_call_beside_thousands_can_still_be_seen():
    assert charts.draw_calls([Figures(calls=1), Figures(calls=10_000)], START).bars[0].height > 0


def test_lines_break_where_an_hour_has_no_token():
    chart = charts.draw_ttft([Figures(ttft_p50_ms=p50, ttft_p95_ms=p50) for p50 in (100, 200, None, 50)])

    assert chart.top_ms == 200
    assert chart.p50 == "M5.0 50.0L15.0 0.0M33.0 75.0H37.0"


def test_without_any_token_there_is_no_line():
    assert charts.draw_ttft([QUIET] * 24) is None
