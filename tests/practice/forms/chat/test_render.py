"""The chat completions form, as it goes out."""

import json
from collections.abc import Iterator

import pytest

from practice.answer import Answer
from practice.cache import Lookup
from practice.directives import parse_directives
from practice.forms.chat.render import render_body, render_events
from practice.forms.form import Event, EventKind, Exchange
from practice.forms.refusals import render_refusal, render_refusal_event
from practice.models import MODELS
from practice.prompt import Prompt, Tool
from practice.refusal import Refusal

WEATHER = Tool("weather", {"type": "object", "properties": {"city": {"type": "string"}}})
SHELL = Tool("shell", {}, "custom")


def make(text: str = "@practice tokens=2@", model: str = "practice-chat", **changes: object) -> Exchange:
    directives = parse_directives(text)
    prompt = Prompt(**{"model": model, "rendered": b"x", "user_text": text, **changes})
    answer = Answer(prompt, MODELS[model], directives)
    lookup = Lookup(prompt_tokens=2000, cached_tokens=1024, write_tokens=896, names=(), lifetime_s=1)
    return Exchange(prompt, MODELS[model], directives, lookup, answer, "chatcmpl-practice1", 1_800_000_000)


def chunks(exchange: Exchange) -> list[dict[str, object]]:
    return [json.loads(event.data) for event in render_events(exchange) if event.kind is not EventKind.DONE]


def deltas(exchange: Exchange) -> Iterator[dict[str, object]]:
    for chunk in chunks(exchange):
        for choice in chunk["choices"]:
            yield choice["delta"]


def test_a_stream_is_exactly_this() -> None:
    frame = (
        '"id":"chatcmpl-practice1","object":"chat.completion.chunk","created":1800000000,'
        '"model":"practice-chat","system_fingerprint":"fp_practice",'
    )

    def chunk(delta: str, finish: str = "null") -> bytes:
        choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}'
        return f'{{{frame}"choices":[{choice}]}}'.encode()

    assert list(render_events(make())) == [
        Event(EventKind.OPEN, chunk('{"role":"assistant","content":"","refusal":null}')),
        Event(EventKind.CONTENT, chunk('{"content":"Prac"}')),
        Event(EventKind.CONTENT, chunk('{"content":"tice"}')),
        Event(EventKind.FINISH, chunk("{}", '"stop"')),
        Event(EventKind.DONE, b"[DONE]"),
    ]


def test_usage_comes_last_when_asked_for_and_is_null_before() -> None:
    said = chunks(make(wants_usage=True))
    assert [chunk["usage"] for chunk in said[:-1]] == [None] * 4
    assert said[-1]["choices"] == []
    assert said[-1]["usage"]["prompt_tokens"] == 2000
    assert said[-1]["usage"]["completion_tokens"] == 2
    assert said[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 1024, "audio_tokens": 0}


def test_usage_is_absent_when_not_asked_for() -> None:
    assert all("usage" not in chunk for chunk in chunks(make()))


def test_the_model_that_counts_writes_tells_them() -> None:
    said = chunks(make(model="practice-pro", wants_usage=True))
    assert said[-1]["usage"]["prompt_tokens_details"]["cache_write_tokens"] == 896


def test_reasoning_comes_under_its_name() -> None:
    said = list(deltas(make("@practice tokens=1@", model="practice-reasoner", effort="minimal")))
    assert [list(delta) for delta in said[1:6]] == [["reasoning_content"]] * 4 + [["content"]]
    assert {"reasoning": "Prac"} in deltas(make("@practice reasoning=1,reasoning_key=reasoning@"))


def test_a_tool_call_opens_with_its_name_and_grows() -> None:
    said = [
        delta["tool_calls"][0] for delta in deltas(make("weather", tools=(WEATHER,))) if "tool_calls" in delta
    ]
    assert list(said[0]) == ["index", "id", "type", "function"]
    assert said[0]["function"] == {"name": "weather", "arguments": ""}
    assert all(list(call) == ["index", "function"] for call in said[1:])
    assert json.loads("".join(call["function"]["arguments"] for call in said)) == {"city": "practice"}
    finish = chunks(make("weather", tools=(WEATHER,)))[-1]["choices"][0]
    assert (finish["delta"], finish["finish_reason"]) == ({}, "tool_calls")


def test_a_custom_tool_call_has_an_input() -> None:
    said = [
        delta["tool_calls"][0] for delta in deltas(make("shell", tools=(SHELL,))) if "tool_calls" in delta
    ]
    assert said[0]["custom"] == {"name": "shell", "input": ""}
    assert said[1] == {"index": 0, "custom": {"input": "Prac"}}


def test_every_choice_opens_and_finishes_once() -> None:
    said = [choice for chunk in chunks(make(choices=2)) for choice in chunk["choices"]]
    assert [choice["index"] for choice in said if "role" in choice["delta"]] == [0, 1]
    assert sorted(choice["index"] for choice in said if choice["finish_reason"]) == [0, 1]


def test_a_whole_answer_is_exactly_this() -> None:
    assert json.loads(render_body(make())) == {
        "id": "chatcmpl-practice1",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": "practice-chat",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Practice", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "system_fingerprint": "fp_practice",
        "usage": {
            "prompt_tokens": 2000,
            "completion_tokens": 2,
            "total_tokens": 2002,
            "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }


def test_a_whole_answer_with_tools_and_reasoning_has_no_content() -> None:
    message = json.loads(render_body(make("weather shell @practice reasoning=2@", tools=(WEATHER, SHELL))))
    said = message["choices"][0]["message"]
    assert (said["content"], said["reasoning_content"]) == (None, "Practice")
    assert [call["type"] for call in said["tool_calls"]] == ["function", "custom"]
    assert said["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"practice"}'}
    assert said["tool_calls"][1]["custom"]["input"] == "Practice text, no model wrote it."


def test_stream_and_whole_answer_say_the_same() -> None:
    whole = json.loads(render_body(make("Hello", wants_usage=True)))
    said = chunks(make("Hello", wants_usage=True))
    text = "".join(choice["delta"].get("content", "") for chunk in said for choice in chunk["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert said[-1]["usage"] == whole["usage"]


# Directives that change the form


def test_usage_by_directive_sits_where_that_provider_puts_it() -> None:
    kimi = chunks(make("@practice tokens=2,usage=kimi@", wants_usage=True))
    assert kimi[-1]["choices"][0]["usage"]["cached_tokens"] == 1024
    assert kimi[-1]["choices"][0]["finish_reason"] == "stop"
    deepseek = chunks(make("@practice tokens=2,usage=deepseek@"))
    assert deepseek[-1]["usage"]["prompt_cache_hit_tokens"] == 1024
    assert deepseek[-1]["choices"][0]["finish_reason"] == "stop"
    qwen = chunks(make("@practice tokens=2,usage=qwen@", wants_usage=True))
    assert qwen[-1]["usage"]["prompt_tokens_details"]["cache_creation_input_tokens"] == 896


def test_usage_on_every_chunk_grows() -> None:
    for exchange in (
        make("@practice tokens=2,usage=vllm@"),
        make("@practice tokens=2,usage_every@"),
        make(wants_usage_always=True),
    ):
        assert [chunk["usage"]["completion_tokens"] for chunk in chunks(exchange)] == [0, 1, 2, 2]


def test_no_usage_is_no_usage() -> None:
    for usage in ("none", "none,usage_every"):
        text = f"@practice tokens=2,usage={usage}@"
        assert all("usage" not in chunk for chunk in chunks(make(text, wants_usage=True)))
        assert "usage" not in json.loads(render_body(make(text)))


def test_a_finish_may_be_another_or_left_out() -> None:
    assert chunks(make("@practice finish=sensitive@"))[-1]["choices"][0]["finish_reason"] == "sensitive"
    said = chunks(make("@practice finish=none@"))
    assert all(choice["finish_reason"] is None for chunk in said for choice in chunk["choices"])
    assert json.loads(render_body(make("@practice finish=none@")))["choices"][0]["finish_reason"] is None


def test_the_model_may_be_another() -> None:
    text = "@practice answer_model=gpt-9@"
    assert {chunk["model"] for chunk in chunks(make(text))} == {"gpt-9"}
    assert json.loads(render_body(make(text)))["model"] == "gpt-9"


def test_a_prelude_is_a_chunk_without_choices_and_usage() -> None:
    said = chunks(make("@practice tokens=1,prelude@"))
    assert (said[0]["choices"], "usage" in said[0]) == ([], False)
    assert said[1]["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize("wants_usage", [False, True])
def test_empty_has_neither_choices_nor_usage(wants_usage: bool) -> None:
    said = chunks(make("@practice empty@", wants_usage=wants_usage))
    assert [chunk["choices"] for chunk in said] == [[]]
    assert said[0].get("usage") is None
    body = json.loads(render_body(make("@practice empty@")))
    assert (body["choices"], "usage" in body) == ([], False)


def test_an_error_has_all_four_fields() -> None:
    refusal = Refusal(429, "slow down")
    assert json.loads(render_refusal(refusal)) == {
        "error": {
            "message": "slow down",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    assert render_refusal_event(refusal).data == render_refusal(refusal)
