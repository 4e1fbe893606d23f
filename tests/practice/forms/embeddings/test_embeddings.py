"""The embeddings form: vectors of length one, the same for the same text."""

import base64
import doctest
import math
import struct
from typing import Any

import pytest

from practice.forms.embeddings import render
from tests.practice.forms.asking import ask


def embed(value: object = "Once", **fields: object) -> dict[str, Any]:
    return ask("/v1/embeddings", {"model": "practice-embedding", "input": value, **fields})


def vectors(value: object = "Once", **fields: object) -> list[list[float]]:
    return [item["embedding"] for item in embed(value, **fields)["data"]]


def test_the_doctests_hold() -> None:
    assert doctest.testmod(render).failed == 0


def test_it_works() -> None:
    answer = embed()
    assert (answer["object"], answer["model"]) == ("list", "practice-embedding")
    assert [(item["object"], item["index"]) for item in answer["data"]] == [("embedding", 0)]
    assert answer["usage"] == {"prompt_tokens": 1, "total_tokens": 1}
    assert len(answer["data"][0]["embedding"]) == 1536


def test_every_vector_has_length_one_and_belongs_to_its_text() -> None:
    several = vectors(["a", "b", "a", "驿站"])
    assert several[0] == several[2] != several[1]
    assert several == [*vectors("a"), *vectors("b"), *vectors("a"), *vectors("驿站")]
    for vector in several:
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


def test_fewer_dimensions_are_the_first_ones_made_long_again() -> None:
    whole, short = vectors()[0], vectors(dimensions=8)[0]
    assert len(short) == 8
    assert math.hypot(*short) == pytest.approx(1, abs=1e-6)
    assert [a / b for a, b in zip(whole, short, strict=False)] == pytest.approx(
        [whole[0] / short[0]] * 8, rel=1e-4
    )


def test_base64_holds_the_same_numbers() -> None:
    (encoded,) = (item["embedding"] for item in embed(encoding_format="base64")["data"])
    raw = base64.b64decode(encoded)
    assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == vectors(encoding_format="float")[0]


def test_tokens_count_as_what_they_are() -> None:
    answer = embed([[1, 2, 3], [4]])
    assert answer["usage"]["prompt_tokens"] == 4
    assert len(answer["data"]) == 2
    assert embed([1, 2, 3])["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", "missing_required_parameter"),
        ({"model": "gpt-9"}, "model", "model_not_found"),
        ({"model": "practice-chat"}, "model", "unsupported_model"),
        ({"input": None}, "input", "invalid_type"),
        ({"input": ""}, "input", "invalid_value"),
        ({"input": ["a", ""]}, "input", "invalid_value"),
        ({"encoding_format": "hex"}, "encoding_format", "invalid_value"),
        ({"dimensions": 0}, "dimensions", "invalid_value"),
        ({"dimensions": 1537}, "dimensions", "invalid_value"),
        ({"input": "w" * 8193 * 4}, "input", "context_length_exceeded"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, object], param: str, code: str) -> None:
    error = embed(**fields)["error"]
    assert (error["param"], error["code"]) == (param, code)


def test_directives_work_in_inputs() -> None:
    assert embed("@practice status=500@")["error"]["type"] == "server_error"
    assert "usage" not in embed("@practice usage=none@")
    assert embed("@practice empty@")["data"] == []
    assert embed("@practice answer_model=other@")["model"] == "other"
    assert "error" in embed("@practice error_body@")
