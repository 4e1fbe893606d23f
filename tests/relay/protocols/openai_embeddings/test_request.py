"""What is read of an embeddings request, what is refused, and what goes upstream."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from relay.errors import ErrorKind, Refusal
from relay.protocols.openai_embeddings.request import EmbeddingRequest, parse_request, upstream_body

PLAIN = EmbeddingRequest(model="m", inputs=1, task_id="", has_task_id=False)


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "input": "Once", **fields}).encode()


def sent(raw: bytes, upstream_model: str = "m") -> bytes:
    """The body that goes upstream."""
    return b"".join(upstream_body(raw, parse_request(raw), upstream_model=upstream_model))


def test_it_works() -> None:
    request = parse_request(body())
    assert request == PLAIN
    assert (request.stream, request.output_ceiling) == (False, 0)


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"input": ["a", "b", "c"]}, {"inputs": 3}),
        ({"input": [1, 2, 3]}, {}),
        ({"input": [[1, 2], [3]]}, {"inputs": 2}),
        ({"encoding_format": "base64", "dimensions": 256, "user": "u"}, {}),
        ({"stream": True, "n": 5, "max_tokens": 100}, {}),
        ({"task_id": "job 7"}, {"task_id": "job 7", "has_task_id": True}),
    ],
)
def test_routing_fields_are_read(fields: dict[str, object], changes: dict[str, Any]) -> None:
    assert parse_request(body(**fields)) == replace(PLAIN, **changes)


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"input":"x"}', "model"),
        (b'{"model":"m"}', "input"),
        (b'{"model":"","input":"x"}', "model"),
        (body(input=None), "input"),
        (body(input=[]), "input"),
        (body(input=[{"text": "a"}]), "input"),
        (body(input=["a"] * 2049), "input"),
        (b'{"model":"m","input":"x","input":["x","y"]}', "input"),
        (b'{"model":"m","input":"x","mod\\u0065l":"n"}', "model"),
    ],
)
def test_a_field_at_fault_is_named(raw: bytes, param: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_request(raw)
    assert (caught.value.kind, caught.value.param) == (ErrorKind.BAD_FIELD, param)


def test_only_name_and_label_are_changed() -> None:
    raw = b' { "input" : [ "a" ] , "task_id": "t", "model" : "m", "encoding_format":"base64" } '
    assert sent(raw, "up") == b' { "input" : [ "a" ] , "model" : "up", "encoding_format":"base64" } '
    assert sent(body(dimensions=8)) == body(dimensions=8)
