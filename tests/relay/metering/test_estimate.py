"""Tokens that nobody counted: a first guess, then what upstreams reported."""

from hypothesis import given
from hypothesis import strategies as st

from relay.metering.estimate import FIRST_TOKENS_PER_BYTE, HOLD_TOKENS_PER_BYTE, WINDOW, Estimator


def learnt(*calls: tuple[int, int, int, int]) -> Estimator:
    estimator = Estimator()
    for body_bytes, input_tokens, events, output_tokens in calls:
        estimator.learn(
            "m", body_bytes=body_bytes, input_tokens=input_tokens, events=events, output_tokens=output_tokens
        )
    return estimator


def test_it_works() -> None:
    estimator = Estimator()
    assert estimator.input_tokens("m", 1000) == 280
    assert estimator.output_tokens("m", 40) == 40
    assert estimator.plain_output_tokens(100) == 28


def test_estimates_are_rounded_up() -> None:
    assert Estimator().input_tokens("m", 1) == 1
    assert Estimator().input_tokens("m", 0) == 0
    assert Estimator.plain_output_tokens(4) == 2


def test_the_median_of_what_was_reported_counts() -> None:
    estimator = learnt((1000, 100, 10, 20), (1000, 200, 10, 30), (1000, 400, 10, 90))
    assert estimator.input_tokens("m", 1000) == 200
    assert estimator.output_tokens("m", 10) == 30


def test_models_are_learnt_apart() -> None:
    estimator = learnt((1000, 100, 10, 20))
    assert estimator.input_tokens("other", 1000) == 280


def test_old_calls_are_forgotten() -> None:
    estimator = learnt(*[(1000, 100, 10, 10)] * WINDOW, *[(1000, 500, 10, 50)] * WINDOW)
    assert estimator.input_tokens("m", 1000) == 500
    assert estimator.output_tokens("m", 10) == 50


def test_what_says_nothing_is_not_learnt() -> None:
    estimator = learnt((0, 100, 0, 10), (1000, 0, 4, 10), (1000, 0, 10, 0))
    assert estimator.input_tokens("m", 1000) == 280
    assert estimator.output_tokens("m", 10) == 10


def test_reports_that_no_text_can_have_are_not_learnt() -> None:
    estimator = learnt(*[(100, 1_500, 10, 10**9)] * WINDOW)
    assert estimator.input_tokens("m", 1000) == 280
    assert estimator.output_tokens("m", 10) == 10


@given(st.integers(0, 10**9), st.integers(1, 10**7))
def test_a_hold_is_above_every_real_prompt_and_within_what_the_model_reads(
    body_bytes: int, context: int
) -> None:
    held = Estimator.hold_input_tokens(body_bytes, context)
    assert held <= context
    assert held == context or held >= body_bytes * 0.45


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=20),
    st.integers(0, 10**6),
)
def test_an_estimate_lies_within_what_was_seen(calls: list[tuple[int, int]], body_bytes: int) -> None:
    estimator = learnt(*((size, tokens, 5, 1) for size, tokens in calls))
    ratios = [tokens / size for size, tokens in calls if tokens <= size * HOLD_TOKENS_PER_BYTE] or [
        FIRST_TOKENS_PER_BYTE
    ]
    found = estimator.input_tokens("m", body_bytes)
    assert min(ratios) * body_bytes - 1 <= found <= max(ratios) * body_bytes + 1
