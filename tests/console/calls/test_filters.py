from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from billing.models import CallStatus
from console.calls.filters import BadFilters, CallFilters, parse_filters, parse_moment

SHANGHAI = ZoneInfo("Asia/Shanghai")


def test_nothing_asked_narrows_nothing():
    assert parse_filters({"model": "", "status": "  "}, SHANGHAI) == CallFilters()


def test_every_word_is_read():
    words = {
        "from": "2026-12-01T00:00:00Z",
        "to": "2026-12-02",
        "model": "kimi-k2",
        "key": "ci",
        "member": "ann@example.com",
        "status": "ok,client_gone",
        "error_kind": "upstream_timeout",
        "task_id": "batch 17",
        "min_ttft_ms": "250.5",
        "min_total_ms": "1000",
        "stream": "true",
    }

    assert parse_filters(words, SHANGHAI) == CallFilters(
        start=datetime(2026, 12, 1, tzinfo=UTC),
        end=datetime(2026, 12, 1, 16, tzinfo=UTC),
        model="kimi-k2",
        key="ci",
        member="ann@example.com",
        statuses=(CallStatus.OK, CallStatus.CLIENT_GONE),
        error_kind="upstream_timeout",
        task_id="batch 17",
        min_ttft_ms=250.5,
        min_total_ms=1000,
        stream=True,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("from", "yesterday"),
        ("from", "0001-01-01T00:00:00+14:00"),
        ("to", "2026-13-01"),
        ("status", "fine"),
        ("status", "ok,"),
        ("min_ttft_ms", "fast"),
        ("min_ttft_ms", "-1"),
        ("min_total_ms", "nan"),
        ("min_total_ms", "inf"),
        ("stream", "maybe"),
        ("model", "m" * 201),
        ("task_id", "a\x00b"),
    ],
)
def test_a_word_that_cannot_be_read_is_named(name, value):
    with pytest.raises(BadFilters) as refusal:
        parse_filters({name: value}, SHANGHAI)

    assert list(refusal.value.errors) == [name]


def test_all_bad_words_are_named_at_once():
    with pytest.raises(BadFilters) as refusal:
        parse_filters({"stream": "x", "min_ttft_ms": "y"}, SHANGHAI)

    assert set(refusal.value.errors) == {"stream", "min_ttft_ms"}


def test_a_range_that_ends_before_it_begins_is_refused():
    with pytest.raises(BadFilters) as refusal:
        parse_filters({"from": "2026-12-02", "to": "2026-12-01"}, SHANGHAI)

    assert list(refusal.value.errors) == ["to"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01T08:30:00+08:00", datetime(2026, 12, 1, 0, 30, tzinfo=UTC)),
        ("2026-12-01T08:30:00 08:00", datetime(2026, 12, 1, 0, 30, tzinfo=UTC)),
        ("2026-12-01T08:30", datetime(2026, 12, 1, 0, 30, tzinfo=UTC)),
        ("2026-12-01 08:30:00", datetime(2026, 12, 1, 0, 30, tzinfo=UTC)),
        ("20261201T003000Z", datetime(2026, 12, 1, 0, 30, tzinfo=UTC)),
    ],
)
def test_moments_are_read_in_the_zone_in_force_also_with_a_plus_that_was_lost_in_the_address(text, moment):
    assert parse_moment(text, SHANGHAI) == moment
