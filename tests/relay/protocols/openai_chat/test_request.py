"""What is read of a chat request, what is refused, and what goes upstream."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relay.errors import ErrorKind, Refusal
from relay.protocols.openai_chat.request import ChatRequest, parse_request, upstream_body

PLAIN = ChatRequest(
    model="m",
    stream=False,
    asks_usage=False,
    output_ceiling=None,
    choices=1,
    reasoning_effort="",
    service_tier="",
    task_id="",
    has_stream_options=False,
    has_task_id=False,
)


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [], **fields}).encode()


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
        ({"stream_options": {}}, {"has_stream_options": True}),
        ({"stream_options": {"include_usage": None}}, {"has_stream_options": True}),
        ({"stream_options": {"include_usage": False}}, {"has_stream_options": True}),
        ({"stream_options": {"include_usage": True}}, {"has_stream_options": True, "asks_usage": True}),
        ({"max_tokens": 5}, {"output_ceiling": 5}),
        ({"max_completion_tokens": 7, "max_tokens": 5}, {"output_ceiling": 7}),
        ({"max_completion_tokens": None, "max_tokens": 5}, {"output_ceiling": 5}),
        ({"n": 3}, {"choices": 3}),
        ({"n": 3, "max_tokens": 5}, {"choices": 3, "output_ceiling": 15}),
        ({"reasoning_effort": "high", "service_tier": "flex"}, {"reasoning_effort": "high", "service_tier": "flex"}),
        ({"reasoning_effort": "x" * 50}, {"reasoning_effort": "x" * 32}),
        ({"task_id": "job 7"}, {"task_id": "job 7", "has_task_id": True}),
        ({"task_id": None}, {"has_task_id": True}),
        ({"task_id": "驿" * 300}, {"task_id": "驿" * 200, "has_task_id": True}),
        ({"unknown": {"model": "other", "stream": True}}, {}),
    ],
)  # fmt: skip
def test_routing_fields_are_read(fields: dict[str, object], changes: dict[str, Any]) -> None:
    assert replace(parse_request(body(**fields)), messages_at=(0, 0)) == replace(PLAIN, **changes)


def test_a_name_of_a_field_may_be_spelled_with_escapes() -> None:
    assert parse_request(rb'{"mod\u0065l":"m","messages":[]}') == PLAIN


def test_the_body_may_be_a_bytearray() -> None:
    raw = bytearray(body(stream=True))
    assert b"".join(upstream_body(raw, parse_request(raw), upstream_model="up")).startswith(
        b'{"stream_options"'
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"{",
        b"{}x",
        b"{}{}",
        body() + b"x",
        b"\xef\xbb\xbf" + body(),
        body().decode().encode("utf-16"),
        b'{"model":"m","messages":[],}',
        b'{"model":"m","messages":[1 2]}',
        b'{"model":"m","messages":[[,]]}',
        b'{"model":"m","messages":["a\x00b"]}',
        b'{"model":"m","messages":["a\nb"]}',
        b'{"model":"m\x00","messages":[]}',
        b'{"model":"m\xff","messages":[]}',
        b'{"model":"m","messages":[],"x":NaN}',
        b'{"model":"m","messages":[],"x":Infinity}',
        b'{"model":"m","messages":[],"x":01}',
        b"{'model':'m'}",
        rb'{"model":"\ud800","messages":[]}',
        rb'{"model":"m","messages":["\ud800 and more text behind it"]}',
        rb'{"model":"m","messages":["\udc00\ud800"]}',
        rb'{"model":"m","messages":[],"task_id":"\udfff"}',
        b'{"model":"m","messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"model":"m","messages":[],"x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        b"[" * 10_000,
    ],
)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    refusal = refused(raw)
    assert refusal.kind in (ErrorKind.BAD_JSON, ErrorKind.BAD_FIELD)
    assert len(refusal.message) < 300


@pytest.mark.parametrize("raw", [b"null", b"[]", b"1", b'"model"', b"true"])
def test_json_that_is_no_object_is_refused(raw: bytes) -> None:
    refusal = refused(raw)
    assert (refusal.kind, refusal.param) == (ErrorKind.BAD_FIELD, None)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 1}, "model"),
        ({"model": ""}, "model"),
        ({"model": ["m"]}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 10**7 + 1}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"reasoning_effort": {}}, "reasoning_effort"),
        ({"service_tier": 1}, "service_tier"),
        ({"task_id": 7}, "task_id"),
    ],
)
def test_a_field_that_cannot_be_is_named(fields: dict[str, object], param: str) -> None:
    refusal = refused(body(**fields))
    assert (refusal.kind, refusal.param) == (ErrorKind.BAD_FIELD, param)
    assert param in refusal.message


@pytest.mark.parametrize("name", ["model", "messages"])
def test_a_missing_field_is_named(name: str) -> None:
    fields = {"model": "m", "messages": []}
    del fields[name]
    assert refused(json.dumps(fields).encode()).param == name


def test_the_same_model_and_a_plain_call_change_nothing() -> None:
    raw = b'{ "messages" : [ 1.0e2, "\\u00e9" ] ,"model":"m"}'
    request = parse_request(raw)
    assert upstream_body(raw, request, upstream_model="m")[0] is raw


def test_only_the_value_of_the_model_is_replaced() -> None:
    raw = b'{ "messages" : [ 1.0e2, {"model": "m"} ] ,"model" : "m" , "x":1.50}'
    assert sent(raw, "up/驿") == (
        b'{ "messages" : [ 1.0e2, {"model": "m"} ] ,"model" : ' + '"up/驿"'.encode() + b' , "x":1.50}'
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"", b'{"stream_options":{"include_usage":true},"stream":true,"model":"m","messages":[]}'),
        (b"null", b'{"stream":true,"stream_options":{"include_usage":true},"model":"m","messages":[]}'),
        (b"{}", b'{"stream":true,"stream_options":{"include_usage":true},"model":"m","messages":[]}'),
        (
            b'{"include_obfuscation": false, "include_usage": false}',
            b'{"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true},'
            b'"model":"m","messages":[]}',
        ),
        (
            b'{ "include_usage" : true }',
            b'{"stream":true,"stream_options":{ "include_usage" : true },"model":"m","messages":[]}',
        ),
    ],
)
def test_a_stream_always_asks_the_upstream_for_usage(options: bytes, expected: bytes) -> None:
    member = b'"stream_options":' + options + b"," if options else b""
    assert sent(b'{"stream":true,' + member + b'"model":"m","messages":[]}') == expected


def test_a_plain_call_keeps_its_stream_options() -> None:
    raw = b'{"stream":false,"stream_options":{"include_usage":false},"model":"m","messages":[]}'
    assert sent(raw) == raw


@pytest.mark.parametrize("task", ['"job"', "null", '"\\u006a"'])
def test_the_task_id_is_not_sent_on(task: str) -> None:
    assert (
        sent(b'{"task_id": %b, "model":"m","messages":[]}' % task.encode()) == b'{"model":"m","messages":[]}'
    )
    assert sent(b'{"model":"m","messages":[],"task_id":%b}' % task.encode()) == b'{"model":"m","messages":[]}'


def test_all_edits_at_once() -> None:
    raw = b'{"task_id":"t","model":"m","messages":[{"task_id":1}],"stream":true}'
    assert sent(raw, "up") == (
        b'{"stream_options":{"include_usage":true},"model":"up","messages":[{"task_id":1}],"stream":true}'
    )


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b'{"model":"a","messages":[],"model":"m"}', "model"),
        (rb'{"model":"a","messages":[],"mod\u0065l":"m"}', "model"),
        (b'{"model":"m","messages":[],"task_id":"a","task_id":"b"}', "task_id"),
        (
            b'{"model":"m","messages":[],"stream":true,"stream_options":{},"stream_options":null}',
            "stream_options",
        ),
    ],
)
@pytest.mark.parametrize("upstream_model", ["m", "up"])
def test_a_routing_field_that_stands_twice_is_refused(raw: bytes, name: str, upstream_model: str) -> None:
    with pytest.raises(Refusal) as caught:
        sent(raw, upstream_model)
    assert (caught.value.kind, caught.value.param) == (ErrorKind.BAD_FIELD, name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(JSON, max_size=4),
    st.booleans(),
    st.sampled_from([..., None, {}, {"include_usage": True}, {"include_usage": False, "x": 1}]),
    st.sampled_from([..., None, "job"]),
    st.tuples(
        st.permutations(["model", "messages", "stream", "stream_options", "task_id", "x"]), st.booleans()
    ),
)
def test_the_upstream_reads_the_same_request(
    messages: list[Any], stream: bool, options: Any, task: Any, spelling: tuple[list[str], bool]
) -> None:
    order, ascii_only = spelling
    fields = {"model": "alias", "messages": messages, "stream": stream, "stream_options": options, "task_id": task,
              "x": [{"model": "y", "task_id": 1}]}  # fmt: skip
    given_fields = {name: fields[name] for name in order if fields[name] is not ...}
    raw = json.dumps(given_fields, ensure_ascii=ascii_only, indent=1).encode("utf-8", "surrogatepass")
    try:
        got = json.loads(sent(raw, "up-model"))
    except Refusal:
        assert any(
            0xD800 <= ord(character) <= 0xDFFF for character in json.dumps(messages, ensure_ascii=False)
        )
        return
    expected = {name: value for name, value in given_fields.items() if name != "task_id"} | {
        "model": "up-model"
    }
    if stream:
        expected["stream_options"] = {**(expected.get("stream_options") or {}), "include_usage": True}
    assert got == expected


def test_of_two_limits_the_larger_one_is_held_for() -> None:
    both = b'{"model":"m","messages":[],"max_completion_tokens":1,"max_tokens":1000,"n":2}'
    assert parse_request(both).output_ceiling == 2000


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n", "stream"])
@pytest.mark.parametrize("escaped", [False, True])
def test_a_field_that_the_hold_depends_on_may_not_stand_twice(name: str, escaped: bool) -> None:
    value = b"true" if name == "stream" else b"1"
    again = b"\\u00%02x" % ord(name[0]) + name[1:].encode() if escaped else name.encode()
    body = b'{"model":"m","messages":[],"%b":%b,"%b":%b}' % (name.encode(), value, again, value)
    with pytest.raises(Refusal) as refused:
        parse_request(body)
    assert refused.value.kind is ErrorKind.BAD_FIELD
    assert refused.value.param == name
