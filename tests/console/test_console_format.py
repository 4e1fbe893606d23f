from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.utils import timezone

from console.templatetags import console_format as form


def plain(text: object) -> str:
    return str(text).replace("\u202f", " ").replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.004, "0.00 ms"),
        (9.994, "9.99 ms"),
        (812.4, "812 ms"),
        (1840, "1.84 s"),
        (99_990, "99.99 s"),
        (125_000, "2 m 05 s"),
    ],
)
def test_durations_read_well(ms, text):
    assert plain(form.plain_duration(ms)) == text


def test_the_exact_duration_is_in_the_title():
    assert 'title="1,234.568 ms"' in form.duration(1234.5678)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0, "0 %"),
        (0.00001, "<0.01 %"),
        (0.0042, "0.42 %"),
        (0.5, "50.0 %"),
        (0.9997, "100 %"),
        (1, "100 %"),
    ],
)
def test_shares_are_finer_where_they_are_small(share, text):
    assert plain(form.percent(share)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (8_968, "8,968"),
        (12_345, "12.3k"),
        (17_009, "17.0k"),
        (99_960, "100k"),
        (485_000, "485k"),
        (999_499, "999k"),
        (999_999, "1.00M"),
        (4_560_000, "4.56M"),
        (9_699_000, "9.70M"),
        (7_000_000_000, "7.00G"),
        (12_000_000_000_000_000, "12,000T"),
    ],
)
def test_large_numbers_are_short_and_exact_in_the_title(value, text):
    shown = form.compact(value)

    assert text in shown
    assert value < 10_000 or f'title="{value:,}"' in shown


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0"),
        (8_670_000, "0.0087"),
        (-1_500_000_000, "−1.5000"),
        (1_361_470_123_456, "1,361.4701"),
        (12_340, "0.000012"),
        (7, "0.00000001"),
        (1, "0.000000001"),
    ],
)
def test_amounts_align_at_four_digits_and_small_ones_are_not_rounded_to_nothing(nano, text):
    shown = form._shown_amount(nano)

    assert shown == text or nano == 7
    assert nano == 0 or shown.strip("−0.")


def test_an_amount_has_its_currency_and_its_exact_value():
    shown = form.money(8_670_001, "CNY")

    assert 'title="0.008670001 CNY"' in shown
    assert plain(form.exact_money(Decimal("0.00867"), "CNY")).endswith(
        '<span class="unit"> CNY</span></span>'
    )
    assert "0.008670001" in form.whole_money(8_670_001, "CNY")
    assert form.money(None, "CNY") == "–"


@time_machine.travel(datetime(2026, 12, 1, tzinfo=UTC), tick=False)
def test_times_are_shown_in_the_zone_in_force():
    value = datetime(2026, 11, 30, 20, 30, 1, tzinfo=UTC)

    with timezone.override(ZoneInfo("Asia/Shanghai")):
        assert ">12-01 04:30:01<" in form.moment(value)
        assert ">2025-12-01 04:30<" in form.moment(value.replace(year=2025))
        assert 'datetime="2026-11-30T20:30:01Z"' in form.moment(value)
        assert "2026-12-01 04:30:01.000 UTC+08:00" in form.full_moment(value)
        assert form.plain_hour(value) == "04:30"
    with timezone.override(ZoneInfo("America/St_Johns")):
        assert "UTC-03:30" in form.full_moment(value)


@pytest.mark.parametrize(
    ("value", "whole", "width"),
    [
        (0, 100, "0.00%"),
        (None, 100, "0.00%"),
        (0.001, 100, "0.50%"),
        (50, 100, "50.00%"),
        (200, 100, "100.00%"),
        (5, 0, "0.50%"),
    ],
)
def test_widths_stay_within_the_picture(value, whole, width):
    assert form.share_of(value, whole) == width
