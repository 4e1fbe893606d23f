"""Stages between marks: they follow each other and add up, wherever the call ended."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.metering.timing import Marks, server_timing, stages, ttfb_ms, ttft_ms

WALK = (
    "authenticated", "received", "routed", "permitted", "attempt_started", "connected", "sent", "headers",
    "first_token", "upstream_done", "ended",
)  # fmt: skip


def walked(*steps: float, **more: float) -> Marks:
    """Marks one after the other, each so many seconds behind the one before; None of those left."""
    marks, at = Marks(100.0), 100.0
    for name, step in zip(WALK, steps, strict=False):
        at += step
        setattr(marks, name, at)
    for name, value in more.items():
        setattr(marks, name, value)
    return marks


def test_it_works() -> None:
    marks = walked(0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.010, 0.011)
    assert stages(marks) == {
        "auth": 1.0, "receive": 2.0, "route": 3.0, "permit": 4.0, "failover": 5.0, "connect": 6.0, "send": 7.0,
        "upstream_wait": 8.0, "prefill": 9.0, "decode": 10.0, "relay_overhead": 11.0,
    }  # fmt: skip


def test_a_refused_call_has_the_stages_that_it_came_to() -> None:
    marks = walked(0.001, 0.002)
    marks.ended = 100.005
    assert stages(marks) == {"auth": 1.0, "receive": 2.0, "relay_overhead": 2.0}


def test_waiting_for_a_slow_client_is_shown_apart() -> None:
    marks = walked(*[0.01] * 11, write_wait=0.004)
    assert stages(marks) | {"decode": 6.0, "client_write_wait": 4.0} == stages(marks)
    marks.write_wait = 0.015
    assert stages(marks)["client_write_wait"] == 15.0
    assert "decode" not in stages(marks)
    assert stages(marks)["relay_overhead"] == 5.0


def test_the_first_marks_are_counted_from_acceptance() -> None:
    marks = walked(first_byte_out=100.5, first_token_out=100.75)
    assert (ttfb_ms(marks), ttft_ms(marks)) == (500.0, 750.0)
    assert (ttfb_ms(Marks(1.0)), ttft_ms(Marks(1.0))) == (None, None)


def test_the_header_names_what_is_known_by_then() -> None:
    marks = walked(0.001, 0.002, 0.003, 0.004)
    assert (
        server_timing(stages(marks))
        == b"auth;dur=1.000, receive;dur=2.000, route;dur=3.000, permit;dur=4.000"
    )


DURATIONS = st.floats(0, 100) | st.just(0.0)


@given(st.lists(st.none() | DURATIONS, min_size=10, max_size=10), DURATIONS, st.just(0.0) | st.floats(0, 500))
def test_stages_add_up_whichever_marks_are_missing(
    steps: list[float | None], last: float, write_wait: float
) -> None:
    marks, at = Marks(1000.0), 1000.0
    for name, step in zip(WALK[:-1], steps, strict=True):
        if step is not None:
            at += step
            setattr(marks, name, at)
    marks.ended, marks.write_wait = at + last, write_wait
    found = stages(marks)
    assert sum(found.values()) == pytest.approx((marks.ended - 1000.0) * 1000, abs=0.001 * (len(found) + 1))
    assert all(duration > 0 for duration in found.values())


def test_every_mark_of_the_walk_is_a_stage_or_a_mark_of_the_client() -> None:
    others = {"accepted", "first_byte_out", "first_token_out", "write_wait"}
    assert {field.name for field in msgspec.structs.fields(Marks)} == {*WALK, *others}
