"""What a client reads of an answer, in each dialect, from a stream and from a plain answer alike."""

import json
from typing import Any

import pytest

from tests.cases.harness.expectations import check_translated, shows_usage
from tests.cases.harness.reading import parse_events, read_plain, read_stream


def sse(*items: Any, named: bool = False) -> bytes:
    parts = []
    for item in items:
        name = f"event: {item['type']}\n" if named and isinstance(item, dict) else ""
        parts.append(f"{name}data: {item if isinstance(item, str) else json.dumps(item)}\n\n")
    return "".join(parts).encode()


CHAT = sse(
    {"id": "c", "choices": [{"delta": {"role": "assistant", "content": "", "reasoning_content": "hm"}}]},
    {"id": "c", "choices": [{"delta": {"content": "Hel"}}]},
    {"id": "c", "choices": [{"delta": {"content": "lo", "tool_calls": [
        {"index": 0, "id": "k", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}]}}]},
    {"id": "c", "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}}]},
    {"id": "c", "choices": [{"delta": {}, "finish_reason": "stop"}]},
    {"id": "c", "choices": [], "usage": {"prompt_tokens": 1}},
    "[DONE]",
)  # fmt: skip
RESPONSES = sse(
    {"type": "response.created", "sequence_number": 0},
    {"type": "response.output_item.added", "sequence_number": 1, "item": {"id": "r"}},
    {"type": "response.reasoning_text.delta", "sequence_number": 2, "item_id": "r", "delta": "hm"},
    {"type": "response.output_item.done", "sequence_number": 3, "item": {"id": "r", "type": "reasoning"}},
    {"type": "response.output_item.added", "sequence_number": 4, "item": {"id": "m"}},
    {"type": "response.output_text.delta", "sequence_number": 5, "item_id": "m", "delta": "Hello"},
    {"type": "response.output_item.done", "sequence_number": 6, "item": {"id": "m", "type": "message"}},
    {"type": "response.output_item.added", "sequence_number": 7, "item": {"id": "t"}},
    {"type": "response.output_item.done", "sequence_number": 8, "item": {
        "id": "t", "type": "function_call", "name": "f", "arguments": '{"a":1}', "call_id": "k"}},
    {"type": "response.completed", "sequence_number": 9, "response": {
        "id": "x", "status": "completed", "output": [1, 2, 3], "usage": {"prompt_tokens": 1}}},
    named=True,
)  # fmt: skip
ANTHROPIC = sse(
    {"type": "message_start", "message": {"usage": {"prompt_tokens": 9}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "k", "name": "f"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "stop"}, "usage": {"prompt_tokens": 1}},
    {"type": "message_stop"},
    named=True,
)  # fmt: skip
GEMINI = sse(
    {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}, {"text": "Hel"}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "lo"}, {"functionCall": {"id": "k", "name": "f", "args": {"a": 1}}}]},
                     "finishReason": "stop"}], "usageMetadata": {"prompt_tokens": 1}},
)  # fmt: skip
STREAMS = {"openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI}
PLAIN = {
    "openai-chat": {
        "choices": [{"finish_reason": "stop", "message": {
            "content": "Hello", "reasoning_content": "hm",
            "tool_calls": [{"id": "k", "function": {"name": "f", "arguments": '{"a":1}'}}]}}],
        "usage": {"prompt_tokens": 1},
    },
    "openai-responses": {
        "status": "completed",
        "output": [
            {"type": "reasoning", "summary": [{"text": "h"}], "content": [{"text": "m"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
            {"type": "function_call", "name": "f", "arguments": '{"a":1}', "call_id": "k"},
        ],
        "usage": {"prompt_tokens": 1},
    },
    "anthropic": {
        "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hello"},
            {"type": "tool_use", "name": "f", "input": {"a": 1}, "id": "k"},
        ],
        "stop_reason": "stop",
        "usage": {"prompt_tokens": 1},
    },
    "gemini": {
        "candidates": [{"content": {"parts": [
            {"text": "hm", "thought": True}, {"text": "Hello"}, {"functionCall": {"id": "k", "name": "f", "args": {"a": 1}}},
        ]}, "finishReason": "stop"}],
        "usageMetadata": {"prompt_tokens": 1},
    },
}  # fmt: skip


@pytest.mark.parametrize("client", STREAMS)
def test_a_stream_is_read(client: str) -> None:
    reading = read_stream(client, parse_events(STREAMS[client]))
    assert (reading.text, reading.thinking) == ("Hello", "hm")
    assert reading.calls == [{"name": "f", "arguments": {"a": 1}, "id": "k"}]
    assert reading.finish == ("completed" if client == "openai-responses" else "stop")
    assert (reading.finishes, reading.usage, reading.ends_with) == (1, {"prompt_tokens": 1}, "done")


@pytest.mark.parametrize("client", PLAIN)
def test_a_plain_answer_is_read_alike(client: str) -> None:
    plain = read_plain(client, PLAIN[client])
    stream = read_stream(client, parse_events(STREAMS[client]))
    assert (plain.text, plain.thinking, plain.calls) == (stream.text, stream.thinking, stream.calls)
    assert (plain.finish, plain.usage) == (stream.finish, stream.usage)


@pytest.mark.parametrize("client", STREAMS)
def test_a_stream_in_good_shape_is_found_so(client: str) -> None:
    assert list(check_translated(client, parse_events(STREAMS[client]))) == []


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "anthropic"])
def test_a_stream_in_bad_shape_is_found_out(client: str) -> None:
    events = parse_events(STREAMS[client])
    assert list(check_translated(client, [events[3], *events[:3], *events[4:]]))


@pytest.mark.parametrize(
    ("client", "body", "ends_with"),
    [
        ("openai-chat", sse({"choices": []}), "eof"),
        ("openai-chat", sse({"choices": []}, {"error": {"message": "x"}}), "error"),
        ("openai-chat", sse({"error": {"message": "x"}}, "[DONE]"), "done"),
        ("openai-responses", sse({"type": "response.failed", "response": {"status": "failed"}}), "error"),
        ("openai-responses", sse({"type": "error"}), "error"),
        ("openai-responses", sse({"type": "response.created"}), "eof"),
        ("anthropic", sse({"type": "error"}), "error"),
        ("anthropic", sse({"type": "ping"}), "eof"),
        ("gemini", sse({"candidates": []}), "eof"),
        ("gemini", sse({"candidates": []}, {"error": {}}), "error"),
        ("gemini", b'[{"candidates": [{"finishReason": "STOP"}]}]', "done"),
        ("gemini", b"", "eof"),
    ],
)
def test_how_a_stream_ends(client: str, body: bytes, ends_with: str) -> None:
    assert read_stream(client, parse_events(body)).ends_with == ends_with


def test_arguments_that_do_not_parse_equal_nothing() -> None:
    answer = {"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}]}
    assert read_plain("openai-chat", answer).calls[0]["arguments"] == {"unparsed": ""}


def test_usage_is_found_at_any_depth() -> None:
    assert shows_usage([{"response": {"usage": {"a": 1}}}])
    assert shows_usage([[{"usageMetadata": {"a": 1}}]])
    assert not shows_usage([{"usage": None, "x": [{"usage": {"a": "text"}}]}, "usage"])


def test_events_follow_the_standard() -> None:
    body = (
        b"\xef\xbb\xbfevent: a\rdata:1\r\rid: 5\r\n: note\r\ndata: 2\r\ndata: 3\r\n\r\nevent: lost\n\ndata: 4"
    )
    events = [(event.event, event.raw) for event in parse_events(body)]
    assert events == [("a", "1"), ("message", "2\n3"), ("message", "4")]
