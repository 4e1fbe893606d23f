"""The worked examples of the chat form (protocols, 6.4), provider by provider, with their price; and the invariants."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.pricing import Rates, TokenCounts, amount_nano
from relay.protocols.openai_chat import usage
from relay.protocols.openai_chat.usage import is_usable, read_usage, reported_usage, usage_of_answer
from relay.protocols.usage import Usage

RATES = Rates.of(
    version=1, model_name="m", currency="USD", input="2.00", cached_input="0.20", cache_write_5m="2.50",
    cache_write_30m="2.50", cache_write_1h="4.00", output="10.00",
)  # fmt: skip
EXAMPLES: dict[str, tuple[dict[str, Any], Usage, int]] = {
    "openai": (
        {
            "prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 128},
        },
        Usage(uncached_input=86, cached_input=1920, output=300, reasoning=128),
        3_556_000,
    ),
    "openai with written cache": (
        {
            "prompt_tokens": 10400, "completion_tokens": 812, "total_tokens": 11212,
            "prompt_tokens_details": {"cached_tokens": 4096, "cache_write_tokens": 6144},
            "completion_tokens_details": {"reasoning_tokens": 512},
        },
        Usage(uncached_input=160, cached_input=4096, cache_write_30m=6144, output=812, reasoning=512),
        24_619_200,
    ),
    "kimi": (
        {"prompt_tokens": 15000, "completion_tokens": 620, "total_tokens": 15620, "cached_tokens": 14592},
        Usage(uncached_input=408, cached_input=14592, output=620),
        9_934_400,
    ),
    "deepseek": (
        {
            "prompt_tokens": 18000, "completion_tokens": 219, "total_tokens": 18219,
            "prompt_cache_hit_tokens": 17920, "prompt_cache_miss_tokens": 80,
            "completion_tokens_details": {"reasoning_tokens": 205},
        },
        Usage(uncached_input=80, cached_input=17920, output=219, reasoning=205),
        5_934_000,
    ),
    "xai": (
        {
            "prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1450,
            "prompt_tokens_details": {"cached_tokens": 640},
            "completion_tokens_details": {"reasoning_tokens": 400},
        },
        Usage(uncached_input=360, cached_input=640, output=450, reasoning=400, flags=("output_excluded_reasoning",)),
        5_348_000,
    ),
    "qwen with explicit cache": (
        {
            "prompt_tokens": 3000, "completion_tokens": 100, "total_tokens": 3100,
            "prompt_tokens_details": {
                "cached_tokens": 0, "cache_creation_input_tokens": 2048, "cache_type": "ephemeral",
            },
        },
        Usage(uncached_input=952, cache_write_5m=2048, output=100, cache_type="ephemeral"),
        8_024_000,
    ),
    "qwen with implicit cache": (
        {
            "prompt_tokens": 3019, "completion_tokens": 104, "total_tokens": 3123,
            "prompt_tokens_details": {"cached_tokens": 2048},
        },
        Usage(uncached_input=971, cached_input=2048, output=104),
        3_391_600,
    ),
    "glm": (
        {
            "prompt_tokens": 1200, "completion_tokens": 300, "total_tokens": 1500,
            "prompt_tokens_details": {"cached_tokens": 800},
        },
        Usage(uncached_input=400, cached_input=800, output=300),
        3_960_000,
    ),
    "vllm without details": (
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": None},
        Usage(uncached_input=10, output=5),
        70_000,
    ),
    "cache left out of the prompt": (
        {
            "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 745,
            "prompt_tokens_details": {"cached_tokens": 640},
        },
        Usage(uncached_input=100, cached_input=640, output=5, flags=("input_excludes_cache",)),
        378_000,
    ),
    "nothing but the prompt": ({"prompt_tokens": 7}, Usage(uncached_input=7), 14_000),
}  # fmt: skip


def priced(usage: Usage) -> int:
    return amount_nano(
        RATES,
        TokenCounts(
            usage.uncached_input, usage.cached_input, usage.cache_write_5m, usage.cache_write_30m,
            usage.cache_write_1h, usage.output, usage.reasoning, bool(usage.cache_type),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    raw, usage, amount = EXAMPLES[name]
    assert read_usage(raw) == usage
    assert priced(usage) == amount


def test_the_largest_of_the_cached_spellings_counts() -> None:
    raw = {
        "prompt_tokens": 100,
        "cached_tokens": 64,
        "prompt_cache_hit_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 32},
    }
    assert read_usage(raw).cached_input == 64


def test_a_total_that_does_not_fit_is_flagged_and_changes_nothing() -> None:
    usage = read_usage({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 99})
    assert usage == Usage(uncached_input=10, output=5, flags=("total_mismatch",))


def test_reasoning_beyond_the_output_is_output_of_its_own() -> None:
    usage = read_usage(
        {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 9}}
    )
    assert (usage.output, usage.reasoning) == (11, 9)


@pytest.mark.parametrize("value", [None, "7", [], {}, True, float("nan"), float("inf"), -float("inf")])
def test_what_cannot_be_read_counts_as_not_said(value: object) -> None:
    usage = read_usage({"prompt_tokens": 10, "completion_tokens": value, "prompt_tokens_details": value})
    assert (usage.input, usage.output) == (10, 0)


@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens", "cached_tokens"])
def test_a_negative_count_is_none_and_flagged(field: str) -> None:
    usage = read_usage({"prompt_tokens": 10, "completion_tokens": 5, field: -3})
    assert min(usage.uncached_input, usage.cached_input, usage.output) >= 0


def test_a_number_beyond_belief_counts_as_not_said() -> None:
    assert read_usage({"prompt_tokens": 10**10, "completion_tokens": 5, "cached_tokens": -1e300}) == Usage(
        output=5
    )


def test_usage_stands_at_the_top_or_in_the_first_choice() -> None:
    usage = {"prompt_tokens": 1}
    assert usage_of_answer({"usage": usage}) == usage
    assert usage_of_answer({"choices": [{"usage": usage}]}) == usage
    assert usage_of_answer({"usage": None, "choices": [{"usage": usage}]}) == usage
    assert usage_of_answer({"usage": {}, "choices": [{"usage": {}}]}) is None
    assert usage_of_answer({"choices": []}) is None
    assert usage_of_answer({"choices": ["x"], "usage": "y"}) is None


NUMBERS = st.integers(-(10**6), 10**12) | st.none() | st.floats() | st.text(max_size=2) | st.booleans()
DETAILS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "cached_tokens": NUMBERS,
        "cache_write_tokens": NUMBERS,
        "cache_creation_input_tokens": NUMBERS,
        "cache_type": NUMBERS,
        "reasoning_tokens": NUMBERS,
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": NUMBERS,
            "completion_tokens": NUMBERS,
            "total_tokens": NUMBERS,
            "cached_tokens": NUMBERS,
            "prompt_cache_hit_tokens": NUMBERS,
            "prompt_tokens_details": DETAILS,
            "completion_tokens_details": DETAILS,
        },
    )
)
def test_whatever_is_reported_the_record_is_sound(raw: dict[str, Any]) -> None:
    usage = read_usage(raw)
    classes = (
        usage.uncached_input, usage.cached_input, usage.cache_write_5m, usage.cache_write_30m,
        usage.cache_write_1h, usage.output, usage.reasoning,
    )  # fmt: skip
    assert min(classes) >= 0
    assert max(classes) < 2**63
    assert usage.reasoning <= usage.output
    assert usage.input == sum(classes[:5])
    assert priced(usage) >= 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_classes_of_a_sound_report_add_up_to_its_total(
    prompt: int, cached: int, written: int, output: int
) -> None:
    prompt += cached + written
    usage = read_usage(
        {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        }
    )
    assert usage.input + usage.output == prompt + output
    assert usage.flags == ()


@pytest.mark.parametrize(
    ("prompt", "completion", "usable"),
    [
        (10, 5, True),
        (10, 0, True),
        (10.0, 5.0, True),
        (0, 0, False),
        (None, 5, False),
        (10, None, False),
        ("10", 5, False),
        (-1, 5, False),
        (True, 5, False),
        (10**10, 5, False),
        (float("inf"), 5, False),
    ],
)
def test_counts_that_are_none_count_as_no_usage(prompt: object, completion: object, usable: bool) -> None:
    assert is_usable({"prompt_tokens": prompt, "completion_tokens": completion}) is usable


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        ({"usage": {"prompt_tokens": 8, "completion_tokens": 2}}, Usage(uncached_input=8, output=2)),
        ({"usage": {"prompt_tokens": None, "completion_tokens": None}}, None),
        ({"usage": None}, None),
        ({}, None),
    ],
)
def test_what_a_plain_answer_reports(answer: dict[str, object], usage: Usage | None) -> None:
    assert reported_usage(answer) == usage


COUNTS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 12)
    | st.floats(allow_nan=True)
    | st.text(max_size=2)
    | st.just(2 * 10**9)
)
DETAILS = st.none() | st.just([]) | st.dictionaries(
    st.sampled_from(["cached_tokens", "cache_write_tokens", "cache_type", "reasoning_tokens", "audio_tokens"]), COUNTS
)  # fmt: skip
FIELDS = {
    "prompt_tokens": COUNTS, "completion_tokens": COUNTS, "total_tokens": COUNTS, "cached_tokens": COUNTS,
    "prompt_cache_hit_tokens": COUNTS, "prompt_tokens_details": DETAILS, "completion_tokens_details": DETAILS,
}  # fmt: skip


@given(st.fixed_dictionaries({}, optional=FIELDS))
def test_the_quick_way_reads_what_the_thorough_one_reads(raw: dict[str, Any]) -> None:
    assert read_usage(raw) == usage._read_any(raw)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_the_usual_spelling_is_read_the_quick_way(
    prompt: int, cached: int, output: int, reasoning: int
) -> None:
    raw = {
        "prompt_tokens": prompt + cached, "completion_tokens": output + reasoning,
        "total_tokens": prompt + cached + output + reasoning,
        "prompt_tokens_details": {"cached_tokens": cached}, "completion_tokens_details": {"reasoning_tokens": reasoning},
    }  # fmt: skip
    assert usage._read_openai(raw) == usage._read_any(raw)
