"""Usage of completions, in the spellings of its upstreams."""

import doctest
from typing import Any

import pytest

from relay.protocols.openai_completions import usage
from relay.protocols.openai_completions.usage import is_usable, read_usage, usage_of_answer
from relay.protocols.usage import Usage


def test_the_doctests_hold() -> None:
    assert doctest.testmod(usage).failed == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Usage(uncached_input=100, output=20)),
        ({"prompt_tokens_details": {"cached_tokens": 64}}, Usage(uncached_input=36, cached_input=64, output=20)),
        ({"prompt_tokens_details": None}, Usage(uncached_input=100, output=20)),
        ({"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, Usage(uncached_input=36, cached_input=64, output=20)),
        (
            {"prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 32}},
            Usage(uncached_input=4, cached_input=64, cache_write_30m=32, output=20),
        ),
        (
            {"prompt_tokens": 10, "total_tokens": 30, "prompt_tokens_details": {"cached_tokens": 64}},
            Usage(uncached_input=10, cached_input=64, output=20, flags=("input_excludes_cache", "total_mismatch")),
        ),
        ({"total_tokens": 7}, Usage(uncached_input=100, output=20, flags=("total_mismatch",))),
        ({"completion_tokens": None, "total_tokens": None}, Usage(uncached_input=100)),
    ],
)  # fmt: skip
def test_it_is_read_in_disjoint_classes(changes: dict[str, Any], expected: Usage) -> None:
    given = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, **changes}
    assert read_usage(given) == expected


@pytest.mark.parametrize(
    ("given", "usable"),
    [
        ({"prompt_tokens": 1, "completion_tokens": 0}, True),
        ({"prompt_tokens": 0, "completion_tokens": 0}, False),
        ({"prompt_tokens": 1}, False),
        ({"prompt_tokens": None, "completion_tokens": None}, False),
        ({"prompt_tokens": -1, "completion_tokens": 4}, False),
        ({"prompt_tokens": True, "completion_tokens": 4}, False),
        ({"prompt_tokens": 10**12, "completion_tokens": 4}, False),
        ({}, False),
    ],
)
def test_nonsense_is_as_good_as_none(given: dict[str, Any], usable: bool) -> None:
    assert is_usable(given) is usable


@pytest.mark.parametrize("answer", [{}, {"usage": None}, {"usage": {}}, {"usage": 5}])
def test_an_answer_without_usage_has_none(answer: dict[str, Any]) -> None:
    assert usage_of_answer(answer) is None
