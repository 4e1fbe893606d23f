"""Usage of embeddings: input, and nothing else."""

import doctest
from typing import Any

import pytest

from relay.protocols.openai_embeddings import usage
from relay.protocols.openai_embeddings.usage import is_usable, read_usage, usage_of_answer
from relay.protocols.usage import Usage


def test_the_doctests_hold() -> None:
    assert doctest.testmod(usage).failed == 0


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ({"prompt_tokens": 8, "total_tokens": 8}, 8),
        ({"total_tokens": 8}, 8),
        ({"prompt_tokens": 8, "completion_tokens": 0, "total_tokens": 8}, 8),
        ({"prompt_tokens": 8.0}, 8),
        ({"prompt_tokens": 0, "total_tokens": 0}, None),
        ({"prompt_tokens": None, "total_tokens": None}, None),
        ({"prompt_tokens": "8"}, None),
        ({"prompt_tokens": -8, "total_tokens": 8}, None),
        ({"prompt_tokens": 10**12}, None),
        ({}, None),
    ],
)
def test_it_is_read_as_uncached_input(given: dict[str, Any], tokens: int | None) -> None:
    assert is_usable(given) is (tokens is not None)
    if tokens is not None:
        assert read_usage(given) == Usage(uncached_input=tokens)


@pytest.mark.parametrize("answer", [{}, {"usage": None}, {"usage": {}}, {"usage": 5}])
def test_an_answer_without_usage_has_none(answer: dict[str, Any]) -> None:
    assert usage_of_answer(answer) is None
