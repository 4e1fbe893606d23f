"""Reading a chat completions request, and refusing one."""

import pytest

from practice.forms.chat.request import read_prompt
from practice.prompt import ToolChoice
from practice.refusal import Refusal
from practice.tokens import count_tokens

USER = {"role": "user", "content": "Hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "x"}'}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
MANY = [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}


def read(*messages: dict[str, object], **fields: object):
    return read_prompt({"model": "practice-chat", "messages": list(messages or (USER,)), **fields})


def test_a_request_with_model_and_message_is_enough() -> None:
    prompt = read()
    assert (prompt.model, prompt.user_text, prompt.stream, prompt.choices) == (
        "practice-chat",
        "Hello",
        False,
        1,
    )
    assert prompt.rendered == b"<|user|>\nHello"
    assert (prompt.max_tokens, prompt.tools, prompt.json_schema) == (None, (), None)
    assert (prompt.wants_usage, prompt.parallel_calls) == (False, True)


def test_text_as_a_string_and_as_a_part_are_the_same_prompt() -> None:
    parts = [{"type": "text", "text": "Hello", "prompt_cache_breakpoint": {"mode": "explicit"}}]
    assert read({"role": "user", "content": parts}).rendered == read().rendered


def test_the_last_user_message_counts_also_before_tool_results() -> None:
    prompt = read({"role": "user", "content": "first"}, *MANY, RESULT, {"role": "assistant", "content": "ok"})
    assert prompt.user_text == "weather?"
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert (
        read({"role": "user", "content": [*parts, {"type": "text", "text": "two"}]}).user_text == "one\ntwo"
    )
    assert read({"role": "system", "content": "x"}).user_text == ""


def test_everything_the_model_would_see_is_rendered_in_its_order() -> None:
    prompt = read({"role": "system", "content": "Be kind."}, *MANY, RESULT, tools=[TOOL])
    assert prompt.rendered == (
        b'<|tool|>{"name":"weather","parameters":{"type":"object"}}'
        b"<|system|>\nBe kind.<|user|>\nweather?<|assistant|>\n"
        b'<|call|>weather\n{"city": "x"}<|tool|>\n18 degrees'
    )


def test_another_key_order_is_another_prompt() -> None:
    turned = {"type": "function", "function": {"parameters": {"type": "object"}, "name": "weather"}}
    assert read(tools=[TOOL]).rendered != read(tools=[turned]).rendered


def test_settings_do_not_change_the_prompt() -> None:
    plain = read().rendered
    assert read(stream=True, temperature=0.5, max_tokens=5, prompt_cache_key="k", user="u").rendered == plain


def test_an_image_counts_as_256_tokens_and_differs_by_its_bytes() -> None:
    def look(url: str) -> bytes:
        return read({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}).rendered

    assert count_tokens(len(look("data:a")) - len(b"<|user|>\n")) == 256
    assert look("data:" + "a" * 100_000) != look("data:" + "a" * 100_001)
    assert look("data:a") == look("data:a")


def test_tools_of_both_kinds_are_read() -> None:
    tools = read(tools=[TOOL, {"type": "custom", "custom": {"name": "shell"}}]).tools
    assert [(tool.name, tool.kind) for tool in tools] == [("weather", "function"), ("shell", "custom")]


@pytest.mark.parametrize(
    ("sent", "choice"),
    [
        (None, ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "weather"}}, ToolChoice("required", ("weather",))),
        ({"type": "custom", "custom": {"name": "shell"}}, ToolChoice("required", ("shell",))),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "weather"}}],
                },
            },
            ToolChoice("required", ("weather",)),
        ),
    ],
)
def test_the_choice_of_tools_has_many_forms(sent: object, choice: ToolChoice) -> None:
    assert read(tools=[TOOL], tool_choice=sent).tool_choice == choice


def test_without_tools_none_is_chosen() -> None:
    assert read().tool_choice == ToolChoice("none")


def test_results_since_the_last_user_message_are_known_by_name() -> None:
    second = {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [CALL, second]}
    answered = {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noon"}]}
    prompt = read(USER, asked, answered, RESULT)
    assert [(result.name, result.text) for result in prompt.results] == [
        ("clock", "noon"),
        ("weather", "18 degrees"),
    ]
    assert read(USER, asked, answered, RESULT, USER).results == ()


def test_limits_stop_and_usage_are_read() -> None:
    prompt = read(
        stream=True,
        max_tokens=5,
        max_completion_tokens=7,
        n=2,
        stop=["a", ""],
        reasoning_effort="low",
        parallel_tool_calls=False,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    assert (prompt.max_tokens, prompt.choices, prompt.stop, prompt.effort) == (7, 2, ("a",), "low")
    assert (prompt.stream, prompt.wants_usage, prompt.wants_usage_always) == (True, True, True)
    assert not prompt.parallel_calls
    assert read(stop="end", max_tokens=5).max_tokens == 5


@pytest.mark.parametrize(
    ("sent", "schema"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
            {"type": "array"},
        ),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, {}),
    ],
)
def test_the_format_of_the_answer_is_read(sent: object, schema: object) -> None:
    assert read(response_format=sent).json_schema == schema


def deep(levels: int) -> dict[str, object]:
    nested: dict[str, object] = {}
    for _ in range(levels):
        nested = {"properties": nested}
    return nested


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [USER, {"role": "user", "content": 5}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content"),
        ({"messages": [USER, RESULT]}, "messages[1].tool_call_id"),
        ({"messages": [*MANY, {**RESULT, "tool_call_id": "c9"}]}, "messages[2].tool_call_id"),
        ({"messages": [*MANY, RESULT, RESULT]}, "messages[3].tool_call_id"),
        ({"messages": [*MANY, USER]}, "messages"),
        ({"messages": MANY}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls"),
        ({"functions": []}, "functions"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [TOOL, {"type": "smell", "smell": {"name": "x"}}]}, "tools[1]"),
        ({"tools": [{"type": "function", "function": {"name": "x", "parameters": deep(300)}}]}, "tools"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens"),
        ({"n": 9}, "n"),
        ({"n": True}, "n"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": [5]}, "stop"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": "yes"}, "stream_options"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_prompt({"model": "practice-chat", "messages": [USER], **fields})
    assert (caught.value.status, caught.value.param) == (400, param)
