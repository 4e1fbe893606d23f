"""What the bodies of the OpenAI forms have in common: decoding, refusing, editing."""

import doctest
import json

import msgspec
import pytest

from relay.errors import ErrorKind, Refusal
from relay.protocols import openai_body
from relay.protocols.json_splice import splice
from relay.protocols.openai_body import (
    decode_body,
    drop_edit,
    in_bounds,
    model_edits,
    refuse_twice,
    usage_edit,
)


class Body(msgspec.Struct):
    model: str
    n: int | None = None


DECODER = msgspec.json.Decoder(Body)


def test_the_doctests_hold() -> None:
    assert doctest.testmod(openai_body).failed == 0


def test_it_works() -> None:
    assert decode_body(DECODER, b'{"model":"m","other":[1]}') == Body("m")


@pytest.mark.parametrize(
    ("raw", "kind", "param", "said"),
    [
        (b"{", ErrorKind.BAD_JSON, None, "not valid JSON"),
        (b'{"model":"\xff"}', ErrorKind.BAD_JSON, None, "not valid JSON"),
        (b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", ErrorKind.BAD_JSON, None, "nested too deeply"),
        (b"[]", ErrorKind.BAD_FIELD, None, "must be a JSON object"),
        (b"{}", ErrorKind.BAD_FIELD, "model", "Missing required parameter: 'model'."),
        (b'{"model":1}', ErrorKind.BAD_FIELD, "model", "Invalid value of 'model': expected str, got int."),
        (b'{"model":"m","n":"2"}', ErrorKind.BAD_FIELD, "n", "Invalid value of 'n'"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    raw: bytes, kind: ErrorKind, param: str | None, said: str
) -> None:
    with pytest.raises(Refusal) as caught:
        decode_body(DECODER, raw)
    assert (caught.value.kind, caught.value.param) == (kind, param)
    assert said in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("value", [0, 129, -1])
def test_a_value_out_of_bounds_is_refused(value: int) -> None:
    with pytest.raises(Refusal, match="'n' must be between 1 and 128") as caught:
        in_bounds("n", value, 1, 128)
    assert caught.value.param == "n"


@pytest.mark.parametrize(
    "raw", [b'{"model":"a","model":"b"}', b'{"model":"a","x":{"model":1},"mod\\u0065l":"b"}']
)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_field_that_stands_twice_is_refused(raw: bytes, kind: type) -> None:
    with pytest.raises(Refusal, match="'model' stands twice"):
        refuse_twice(kind(raw), ("n", "model"))


def test_a_name_inside_other_values_is_no_second_field() -> None:
    refuse_twice(b'{"model":"a","x":{"model":1},"y":"\\"model\\":2"}', ("model",))


@pytest.mark.parametrize(
    ("raw", "has_options", "expected"),
    [
        ({"a": 1}, False, {"stream_options": {"include_usage": True}, "a": 1}),
        ({"stream_options": None}, True, {"stream_options": {"include_usage": True}}),
        ({"stream_options": {"x": 1}}, True, {"stream_options": {"x": 1, "include_usage": True}}),
    ],
)
def test_usage_is_asked_for_beside_what_is_asked_for(
    raw: dict[str, object], has_options: bool, expected: dict[str, object]
) -> None:
    body = json.dumps(raw).encode()
    sent = b"".join(splice(body, [usage_edit(body, has_options=has_options)]))
    assert json.loads(sent) == expected


def test_edits_refuse_what_stands_twice() -> None:
    twice = b'{"model":"m","task_id":"a","task_id":"b","model":"m"}'
    for edit in (lambda: model_edits(twice, "m", "up"), lambda: drop_edit(twice, "task_id")):
        with pytest.raises(Refusal, match="stands twice"):
            edit()
