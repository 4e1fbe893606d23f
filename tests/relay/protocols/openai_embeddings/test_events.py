"""What an embeddings answer means, without a look at its numbers."""

import doctest
import json
from typing import Any

import pytest

from relay.protocols.openai_embeddings import events
from relay.protocols.openai_embeddings.events import is_complete_answer, read_answer


def test_the_doctests_hold() -> None:
    assert doctest.testmod(events).failed == 0


def answer(*vectors: object, **fields: object) -> bytes:
    data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(vectors)]
    return json.dumps({"object": "list", "data": data, "model": "up", **fields}).encode()


def test_it_works() -> None:
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    found = read_answer(answer([0.25, -1.5] * 512, "AACAPwAAAMA=", usage=usage))
    assert found == {"object": "list", "data": [True, True], "model": "up", "usage": usage}
    assert is_complete_answer(found)


@pytest.mark.parametrize("vector", [[], "", None])
@pytest.mark.parametrize("indent", [None, 4])
def test_a_vector_that_is_missing_makes_the_answer_none(vector: Any, indent: int | None) -> None:
    laid_out = json.dumps(json.loads(answer([1.0], vector)), indent=indent).encode()
    assert not is_complete_answer(read_answer(laid_out))


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"data":[]}',
        b'{"data":[{}]}',
        b'{"data":[5]}',
        b'{"data":"x"}',
        b'{"data":null}',
        b'{"error":{"code":"x"}}',
    ],
)
def test_an_answer_without_vectors_is_none(raw: bytes) -> None:
    assert not is_complete_answer(read_answer(raw))


@pytest.mark.parametrize(
    "raw",
    [b"", b"<html>", b"[]", b"5", b'{"data":[1', b"\xff{}", b'{"a":' + b"[" * 9000 + b"]" * 9000 + b"}"],
)
def test_what_is_no_object_is_not_read(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        read_answer(raw)


@pytest.mark.parametrize("value", [None, [], 5])
def test_what_is_no_answer_is_not_complete(value: object) -> None:
    assert not is_complete_answer(value)
