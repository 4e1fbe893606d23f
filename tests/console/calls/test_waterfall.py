import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.calls.waterfall import PARTIES, STAGES, draw_waterfall
from console.calls.words import PARTY_NAMES, STAGE_HELP, STAGE_NAMES

EXAMPLE = {"prefill": 600.0, "decode": 1200.0, "auth": 0.5, "connect": 199.5}


def test_stages_are_drawn_in_the_order_of_the_walk_and_end_where_the_next_begins():
    picture = draw_waterfall(EXAMPLE, 2000.0)

    assert [(bar.name, bar.party, bar.x, bar.width) for bar in picture.bars] == [
        ("auth", "relay", "0%", "0.3%"),
        ("connect", "network", "0.025%", "9.975%"),
        ("prefill", "upstream", "10%", "30%"),
        ("decode", "upstream", "40%", "60%"),
    ]


def test_shares_say_which_party_used_the_time():
    picture = draw_waterfall(EXAMPLE, 2000.0)

    assert [(share.party, share.ms, share.share) for share in picture.shares] == [
        ("relay", 0.5, 0.00025),
        ("network", 199.5, 0.09975),
        ("upstream", 1800.0, 0.9),
    ]


def test_marks_keep_their_labels_inside():
    picture = draw_waterfall(EXAMPLE, 2000.0, ttft_ms=1700, ttfb_ms=500)

    assert [(mark.name, mark.x, mark.anchor) for mark in picture.marks] == [
        ("ttfb", "25%", "start"),
        ("ttft", "85%", "end"),
    ]


def test_marks_at_one_moment_are_one():
    assert [mark.name for mark in draw_waterfall(EXAMPLE, 2000.0, ttft_ms=800, ttfb_ms=799).marks] == ["both"]


def test_a_stage_of_a_newer_relay_is_shown_as_unexplained():
    picture = draw_waterfall({"teleport": 10.0, "auth": 1.0}, 11.0)

    assert [(bar.name, bar.party) for bar in picture.bars] == [("auth", "relay"), ("teleport", "unexplained")]


@pytest.mark.parametrize(
    ("stages", "total"), [({}, 0), ({}, 100.0), ({"auth": 0.0}, 0.0), ({"auth": -1.0}, 5.0)]
)
def test_without_stages_there_is_no_picture(stages, total):
    assert draw_waterfall(stages, total) is None


def test_every_stage_and_party_has_a_name():
    assert set(STAGES) == set(STAGE_NAMES) == set(STAGE_HELP)
    assert set(STAGES.values()) == set(PARTIES) == set(PARTY_NAMES)


@pytest.mark.parametrize(
    ("total", "ticks"),
    [(0.9, [0, 0.25, 0.5, 0.75]), (299, [0, 50, 100, 150, 200, 250]), (3204, [0, 1000, 2000, 3000])],
)
def test_the_scale_has_round_steps(total, ticks):
    assert [tick.ms for tick in draw_waterfall({"auth": total}, total).ticks] == ticks


@given(st.dictionaries(st.sampled_from(sorted(STAGES)), st.floats(0.001, 1e6), min_size=1))
def test_nothing_is_drawn_outside_of_the_picture(stages):
    picture = draw_waterfall(stages, sum(stages.values()))

    for bar in picture.bars:
        assert float(bar.x[:-1]) >= 0 and float(bar.x[:-1]) + float(bar.width[:-1]) <= 100.01
    assert sum(bar.share for bar in picture.bars) == pytest.approx(1)
    assert sum(share.share for share in picture.shares) == pytest.approx(1)
    assert 3 <= len(picture.ticks) <= 6
