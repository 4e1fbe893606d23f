"""Texts, tokens, and lists of either."""

import doctest

import pytest

from practice.forms import inputs
from practice.forms.inputs import last_text, read_inputs, to_bytes
from practice.refusal import Refusal
from practice.tokens import count_tokens


def test_the_doctests_hold() -> None:
    assert doctest.testmod(inputs).failed == 0


@pytest.mark.parametrize(
    ("value", "tokens"),
    [("practice", [2]), (["practice", "驿"], [2, 1]), ([7, 8, 9], [3]), ([[7], [8, 9]], [1, 2])],
)
def test_inputs_are_read_and_counted(value: object, tokens: list[int]) -> None:
    found = read_inputs({"prompt": value}, "prompt")
    assert [count_tokens(len(to_bytes(one))) for one in found] == tokens


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        {},
        [],
        [[]],
        ["a", 1],
        [1, "a"],
        [True],
        [-1],
        [2**31],
        [1.5],
        [None],
        ["a"] * 2049,
        [[1], "a"],
    ],
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(Refusal) as caught:
        read_inputs({"input": value}, "input")
    assert (caught.value.status, caught.value.param) == (400, "input")


def test_directives_stand_in_the_last_text() -> None:
    assert last_text(["a", "b"]) == "b"
    assert last_text([b"\0\0\0\1"]) == ""
