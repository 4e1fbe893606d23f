"""What the answers of the OpenAI forms have in common."""

import doctest

import pytest

from relay.protocols import openai_answer
from relay.protocols.openai_answer import answer_error, renaming, token_count


def test_the_doctests_hold() -> None:
    assert doctest.testmod(openai_answer).failed == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"choices": []}, None),
        ({"error": None}, None),
        ({"error": {}}, None),
        ({"error": {"code": "x"}}, {"code": "x"}),
        ({"error": "broken"}, {"message": "broken"}),
        ({"base_resp": {"status_code": 0}}, None),
        ({"base_resp": {"status_code": 1002, "status_msg": "slow"}}, {"code": "1002", "message": "slow"}),
        ([], None),
        (None, None),
    ],
)
def test_an_error_under_status_200_is_found(answer: object, error: dict[str, object] | None) -> None:
    assert answer_error(answer) == error


@pytest.mark.parametrize("value", [None, True, "5", -1, 10**10, [], float("nan"), float("inf")])
def test_what_is_no_count_is_none(value: object) -> None:
    assert token_count({"n": value}, "n") == 0


def test_a_name_is_replaced_only_where_it_is_clear() -> None:
    assert renaming(b'{"a":{"model":"x"}}', "mine") == (b"", b"")
    assert renaming(b'{"model":"a","model":"b"}', "mine") == (b"", b"")
    assert renaming(b'{"text":"\\"model\\":1","model" : "a"}', 'm"') == (
        b'"model" : "a"',
        b'"model" : "m\\""',
    )
