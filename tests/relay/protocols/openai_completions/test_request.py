"""What is read of a completions request, what is refused, and what goes upstream."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relay.errors import ErrorKind, Refusal
from relay.protocols.openai_completions.request import CompletionRequest, parse_request, upstream_body

PLAIN = CompletionRequest(
    model="m",
    stream=False,
    asks_usage=False,
    output_ceiling=None,
    choices=1,
    inputs=1,
    task_id="",
    has_stream_options=False,
    has_task_id=False,
)


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "prompt": "Once", **fields}).encode()


def refused(raw: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_request(raw)
    return caught.value


def sent(raw: bytes, upstream_model: str = "m") -> bytes:
    """The body that goes upstream."""
    return b"".join(upstream_body(raw, parse_request(raw), upstream_model=upstream_model))


def test_it_works() -> None:
    assert parse_request(body()) == PLAIN


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"stream": True}, {"stream": True}),
        ({"stream": None}, {}),
        ({"stream_options": None}, {"has_stream_options": True}),
        ({"stream_options": {"include_usage": True}}, {"has_stream_options": True, "asks_usage": True}),
        ({"stream_options": {"include_usage": False}}, {"has_stream_options": True}),
        ({"max_tokens": 5}, {"output_ceiling": 5}),
        ({"max_tokens": 0, "echo": True, "logprobs": 1}, {"output_ceiling": 0, "echo_bytes": 6}),
        ({"max_tokens": None}, {}),
        ({"n": 3}, {"choices": 3}),
        ({"n": 3, "max_tokens": 5}, {"choices": 3, "output_ceiling": 15}),
        ({"best_of": 4, "max_tokens": 5}, {"choices": 4, "output_ceiling": 20}),
        ({"best_of": 0}, {}),
        ({"n": 2, "best_of": 4}, {"choices": 4}),
        ({"n": 2, "echo": True}, {"choices": 2, "echo_bytes": 12}),
        ({"echo": False, "suffix": "end", "logit_bias": {"50256": -100}, "stop": ["\n"]}, {}),
        ({"prompt": ["a", "b"]}, {"inputs": 2, "choices": 2}),
        ({"prompt": ["a", "b"], "n": 3, "max_tokens": 7}, {"inputs": 2, "choices": 6, "output_ceiling": 42}),
        ({"prompt": [1, 2, 3]}, {}),
        ({"prompt": [[1, 2], [3]], "best_of": 2}, {"inputs": 2, "choices": 4}),
        ({"prompt": None}, {}),
        ({"prompt": ""}, {}),
        ({"task_id": "job 7"}, {"task_id": "job 7", "has_task_id": True}),
        ({"task_id": None}, {"has_task_id": True}),
        ({"task_id": "驿" * 300}, {"task_id": "驿" * 200, "has_task_id": True}),
        ({"unknown": {"model": "other", "prompt": ["x", "y"]}}, {}),
    ],
)  # fmt: skip
def test_routing_fields_are_read(fields: dict[str, object], changes: dict[str, Any]) -> None:
    assert parse_request(body(**fields)) == replace(PLAIN, **changes)
    laid_out = json.dumps({"model": "m", "prompt": "Once", **fields}, indent=4).encode()
    assert replace(parse_request(laid_out), echo_bytes=0) == replace(PLAIN, **{**changes, "echo_bytes": 0})


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"prompt":"x"}', "model"),
        (b'{"model":"m"}', "prompt"),
        (b'{"model":"","prompt":"x"}', "model"),
        (b'{"model":5,"prompt":"x"}', "model"),
        (body(prompt=5), "prompt"),
        (body(prompt={}), "prompt"),
        (body(prompt=[]), "prompt"),
        (body(prompt=["a", 1]), "prompt"),
        (body(prompt=["a"] * 2049), "prompt"),
        (body(n=0), "n"),
        (body(n=129), "n"),
        (body(n="2"), "n"),
        (body(best_of=-1), "best_of"),
        (body(best_of=129), "best_of"),
        (body(max_tokens=-1), "max_tokens"),
        (body(max_tokens=10**9), "max_tokens"),
        (body(max_tokens=1.5), "max_tokens"),
        (body(stream="yes"), "stream"),
        (body(echo=1), "echo"),
        (body(stream_options=5), "stream_options"),
        (b'{"model":"m","prompt":"x","model":"m"}', "model"),
        (b'{"model":"m","prompt":"x","pr\\u006fmpt":["x","y"]}', "prompt"),
        (b'{"model":"m","prompt":"x","n":1,"n":100}', "n"),
        (b'{"model":"m","prompt":"x","best_of":1,"best_of":100}', "best_of"),
        (b'{"model":"m","prompt":"x","max_tokens":1,"max_tokens":100}', "max_tokens"),
        (b'{"model":"m","prompt":"x","stream":true,"stream":false}', "stream"),
    ],
)
def test_a_field_at_fault_is_named(raw: bytes, param: str) -> None:
    refusal = refused(raw)
    assert (refusal.kind, refusal.param) == (ErrorKind.BAD_FIELD, param)
    assert f"'{param}'" in refusal.message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1]",
        b'{"model":"m","prompt":"a\x00b"}',
        b'{"model":"m","prompt":[01]}',
        b'{"model":"m","prompt":["a",]}',
        b'{"model":"m","prompt":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    assert refused(raw).kind in (ErrorKind.BAD_JSON, ErrorKind.BAD_FIELD)


def test_a_body_that_needs_no_edit_is_sent_as_it_came() -> None:
    raw = b' { "prompt" : [ 1 , 2 ] , "model":"m", "temperature": 0.10 } '
    assert sent(raw) == raw


def test_only_the_name_of_the_model_is_changed() -> None:
    raw = b' { "prompt" : "\\"model\\": 1", "model" : "m", "top_p": 1.0 } '
    assert sent(raw, 'up"') == raw.replace(b'"m"', b'"up\\""')


def test_usage_of_a_stream_is_asked_for() -> None:
    assert json.loads(sent(body(stream=True))) == {
        **json.loads(body(stream=True)),
        "stream_options": {"include_usage": True},
    }
    merged = json.loads(sent(body(stream=True, stream_options={"x": 1})))
    assert merged["stream_options"] == {"x": 1, "include_usage": True}
    asked = body(stream=True, stream_options={"include_usage": True})
    assert sent(asked) == asked
    assert sent(body(stream_options={})) == body(stream_options={})


def test_our_own_label_is_not_sent_on() -> None:
    assert json.loads(sent(body(task_id="t"), "up")) == {**json.loads(body()), "model": "up"}


def test_the_body_may_be_a_bytearray() -> None:
    raw = bytearray(body(stream=True))
    request = parse_request(raw)
    assert json.loads(b"".join(upstream_body(raw, request, upstream_model="up")))["model"] == "up"


@given(
    st.dictionaries(
        st.text(max_size=5).map("x-{}".format),
        st.integers() | st.text() | st.lists(st.integers()),
        max_size=4,
    ),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_other_fields_reach_the_upstream_as_they_came(
    others: dict[str, object], indent: int | None, stream: bool
) -> None:
    fields = {**others, "model": "m", "prompt": ["a", "b"], "stream": stream, "task_id": "t"}
    found = json.loads(sent(json.dumps(fields, indent=indent).encode(), "up"))
    found.pop("stream_options", None)
    del fields["task_id"]
    assert found == {**fields, "model": "up"}
