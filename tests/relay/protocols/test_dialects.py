"""The table of dialects: every row can do what the walk asks of it."""

import json
from typing import Any

import pytest

from relay.errors import ErrorKind, Refusal
from relay.protocols.dialect import Dialect
from relay.protocols.dialects import DIALECTS
from relay.protocols.usage import Usage

REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": ["a", "b"]},
    "/v1/embeddings": {"input": ["a", "b", "c"]},
}
USAGE = {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10}
ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": USAGE,
    },
    "/v1/completions": {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": USAGE},
    "/v1/embeddings": {"data": [{"embedding": [1.0]}], "usage": {"prompt_tokens": 8, "total_tokens": 8}},
}
ROWS = pytest.mark.parametrize("row", DIALECTS.values(), ids=DIALECTS)


def test_every_row_stands_under_its_endpoint_and_is_tried_here() -> None:
    assert all(row.endpoint == endpoint for endpoint, row in DIALECTS.items())
    assert DIALECTS.keys() == REQUESTS.keys() == ANSWERS.keys()
    assert len({(row.protocol, row.upstream_path) for row in DIALECTS.values()}) == len(DIALECTS)


@ROWS
def test_a_request_is_read_and_sent_on_under_the_upstreams_name(row: Dialect) -> None:
    raw = json.dumps({"model": "m", "task_id": "t", **REQUESTS[row.endpoint]}).encode()
    request = row.parse_request(raw)
    assert (request.model, request.task_id, request.stream, request.echo_bytes) == ("m", "t", False, 0)
    assert request.inputs == {"/v1/completions": 2, "/v1/embeddings": 3}.get(row.endpoint, 1)
    sent = json.loads(b"".join(row.make_body(raw, request, upstream_model="up")))
    assert sent == {"model": "up", **REQUESTS[row.endpoint]}


@ROWS
def test_what_cannot_be_read_is_refused_in_the_dialect(row: Dialect) -> None:
    with pytest.raises(Refusal) as caught:
        row.parse_request(b"{")
    assert caught.value.kind is ErrorKind.BAD_JSON
    assert row.errors.status(caught.value) == 400
    assert json.loads(row.errors.body(caught.value))["error"]["code"] == "invalid_json"
    assert row.errors.event(caught.value).endswith(b"\n\n")
    assert row.errors.headers(caught.value) == [(b"x-should-retry", b"false")]


@ROWS
def test_a_plain_answer_is_understood(row: Dialect) -> None:
    answer = row.read_answer(json.dumps({"model": "up", **ANSWERS[row.endpoint]}).encode())
    assert isinstance(answer, dict)
    assert row.is_complete(answer)
    assert row.answer_error(answer) is None
    output = 0 if row.endpoint == "/v1/embeddings" else 2
    assert row.usage_of(answer) == Usage(uncached_input=8, output=output)
    assert row.usage_of({**answer, "usage": None}) is None
    assert row.finish_of(answer) == ("stop" if output else "")
    assert bool(row.output_bytes(answer)) is bool(output)
    for nothing in ({}, {"choices": [], "data": []}):
        assert not row.is_complete(nothing)
        assert (row.usage_of(nothing), row.finish_of(nothing)) == (None, "")


@ROWS
@pytest.mark.parametrize("raw", [b"", b"<html>", b'{"a":'])
def test_what_is_no_answer_is_a_value_error(row: Dialect, raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        row.read_answer(raw)


@ROWS
def test_an_error_under_status_200_is_seen(row: Dialect) -> None:
    answer = row.read_answer(b'{"error":{"code":"x"}}')
    assert row.answer_error(answer) == {"code": "x"}
    assert not row.is_complete(answer)


@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_is_made_for_the_name_that_the_client_used(endpoint: str) -> None:
    row = DIALECTS[endpoint]
    assert row.make_stream is not None
    stream = row.make_stream(client_model="mine", keep_usage=False)
    said = {"text": "x"} if endpoint == "/v1/completions" else {"delta": {"content": "x"}}
    chunk = {"model": "up", "choices": [{"index": 0, **said, "finish_reason": "stop"}], "usage": USAGE}
    out = stream.feed(b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")
    assert b'"mine"' in out
    assert b"usage" not in out
    assert (stream.is_complete, stream.done, stream.end_reason) == (True, True, "stop")
    assert (stream.usage, stream.answered_model) == (Usage(uncached_input=8, output=2), "up")


def test_vectors_are_not_streamed() -> None:
    assert DIALECTS["/v1/embeddings"].make_stream is None
