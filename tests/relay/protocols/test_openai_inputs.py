"""How many inputs a request holds: texts, tokens, and lists of both."""

import doctest
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import ErrorKind, Refusal
from relay.protocols import openai_inputs
from relay.protocols.openai_inputs import MAX_INPUTS, count_inputs


def test_the_doctests_hold() -> None:
    assert doctest.testmod(openai_inputs).failed == 0


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("", 1),
        ("one", 1),
        ([""], 1),
        (["a", "b", "c"], 3),
        (['say "x", \\', "[1]", "],["], 3),
        ([1], 1),
        ([1, 22, 333], 1),
        ([[1]], 1),
        ([[1, 2], [3], [4, 5, 6]], 3),
        ([[]], 1),
        (["x"] * MAX_INPUTS, MAX_INPUTS),
        ([[1, 2]] * MAX_INPUTS, MAX_INPUTS),
        ([7] * 100_000, 1),
    ],
)
def test_inputs_are_counted(value: object, count: int) -> None:
    for raw in (
        json.dumps(value).encode(),
        json.dumps(value, separators=(",", ":")).encode(),
        json.dumps(value, indent=2).encode(),
    ):
        assert count_inputs("input", raw) == count
        assert count_inputs("input", memoryview(raw)) == count


@pytest.mark.parametrize(
    "value",
    [
        None, True, 5, {}, {"text": "a"}, [], [None], [True], [{}], [{"text": "a"}], ["a", 1], ["a", ["b"]],
        [1, "a"], [1, [2]], [[1], 2], [[[1]]], [["a"]], [[1], ["a"]], [1.5], [-1], [[1, -1]], [[1], {}], [1, None],
        ["x"] * (MAX_INPUTS + 1), [[1]] * (MAX_INPUTS + 1),
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_name(value: object) -> None:
    with pytest.raises(Refusal) as caught:
        count_inputs("prompt", json.dumps(value).encode())
    assert (caught.value.kind, caught.value.param) == (ErrorKind.BAD_FIELD, "prompt")
    assert "'prompt'" in caught.value.message


@given(
    st.one_of(
        st.lists(st.text(), min_size=1, max_size=8),
        st.lists(st.lists(st.integers(0, 10**6)), min_size=1, max_size=8),
    ),
    st.sampled_from([None, 0, 3]),
)
def test_a_list_holds_as_many_as_it_has(value: list[object], indent: int | None) -> None:
    assert count_inputs("input", json.dumps(value, indent=indent).encode()) == len(value)
    assert count_inputs("input", json.dumps(value, ensure_ascii=False).encode()) == len(value)
