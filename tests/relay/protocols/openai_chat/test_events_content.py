"""What counts as content in a chat stream or answer, and what goes wrong in one."""

from typing import Any

import pytest

from relay.protocols.openai_chat.events import finish_of_answer, has_content, is_complete_answer, output_bytes
from tests.relay.protocols.openai_chat.chunks import (
    DONE,
    HEL,
    LO,
    ROLE,
    STOP,
    USAGE,
    WHOLE,
    choice,
    event,
    read,
)


def test_comments_are_passed_once_there_is_content() -> None:
    comment = b": keep-alive\n\n"
    assert read(comment + ROLE + comment + HEL + comment + LO + STOP + DONE)[0] == (
        ROLE + HEL + comment + LO + STOP + DONE
    )


def test_an_opening_chunk_with_neither_choices_nor_usage_is_dropped() -> None:
    prelude = event(prompt_filter_results=[{"prompt_index": 0}])
    assert read(prelude + WHOLE)[0] == WHOLE


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"reasoning_content": "x"},
        {"reasoning": "x"},
        {"reasoning_details": [{"text": "x"}]},
        {"refusal": "x"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]},
        {"function_call": {"name": "f"}},
        {"audio": {"data": "x"}},
    ],
)
def test_these_are_content(delta: dict[str, Any]) -> None:
    assert has_content(delta)
    assert read(event(choice(delta)), is_ended=False)[1].content_events == 1


@pytest.mark.parametrize(
    "delta",
    [
        None,
        [],
        "x",
        {},
        {"role": "assistant"},
        {"content": ""},
        {"content": None},
        {"tool_calls": []},
        {"x": "y"},
    ],
)
def test_these_are_not(delta: Any) -> None:
    assert not has_content(delta)
    assert read(event(choice(delta)), is_ended=False)[1].content_events == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {\n\n",
        b"data: <html>\n\n",
        b"data: [1]\n\n",
        b"data: \n\n",
        b'data: "text"\n\n',
        b'data: {"id":"c1","choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n',
    ],
)
@pytest.mark.parametrize("before", [b"", ROLE, ROLE + HEL])
def test_an_event_that_cannot_be_read_ends_the_answer(bad: bytes, before: bytes) -> None:
    out, stream = read(before + bad + LO + STOP + DONE)
    assert out == before
    assert stream.error is not None
    assert stream.error["code"] == "garbage"
    assert not stream.is_complete


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b'data: {"error":{"message":"no","code":"1302"}}\n\n', "1302"),
        (b'data: {"error":"no"}\n\n', None),
        (b'event: error\ndata: {"error":{"message":"no","code":7}}\n\n', 7),
        (event(base_resp={"status_code": 1008, "status_msg": "no"}), "1008"),
        (event(choice({}, "network_error")), "network_error"),
        (event(choice({}, "insufficient_system_resource")), "insufficient_system_resource"),
    ],
)
@pytest.mark.parametrize("before", [b"", ROLE, ROLE + HEL])
def test_an_error_ends_the_answer(bad: bytes, code: object, before: bytes) -> None:
    out, stream = read(before + bad + LO + STOP + DONE)
    assert out == before
    assert stream.error is not None
    assert stream.error.get("code") == code
    assert not stream.is_complete


def test_an_error_that_is_null_is_none() -> None:
    assert read(ROLE + HEL + event(choice({"content": "x"}), error=None) + STOP + DONE)[1].is_complete


def test_complete_plain_answers() -> None:
    said = {"choices": [{"message": {"content": "x"}}]}
    silent = {"choices": [{"message": {"content": ""}}]}
    assert is_complete_answer(said)
    assert is_complete_answer({**silent, "usage": USAGE})
    assert is_complete_answer({"choices": [{"message": {"content": None, "tool_calls": [{"id": "a"}]}}]})
    for answer in (
        silent,
        {**silent, "usage": {"prompt_tokens": 1}},
        {"choices": [], "usage": USAGE},
        {},
        [],
        None,
    ):
        assert not is_complete_answer(answer)


def test_the_service_tier_is_noted() -> None:
    assert read(event(choice({"content": "x"}), service_tier="flex") + STOP + DONE)[1].service_tier == "flex"


def test_every_choice_counts_as_content() -> None:
    _, stream = read(event(choice({"content": "a"}), choice({"content": "b"}, index=1)), is_ended=False)
    assert stream.content_events == 2


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        ({"choices": [{"finish_reason": "length"}, {"finish_reason": "stop"}]}, "length"),
        ({"choices": [{"finish_reason": None}]}, ""),
        ({"choices": [5]}, ""),
        ({"choices": []}, ""),
        ({}, ""),
    ],
)
def test_how_a_plain_answer_ended(answer: dict[str, Any], finish: str) -> None:
    assert finish_of_answer(answer) == finish


def test_how_large_the_messages_of_a_plain_answer_are() -> None:
    message = {"role": "assistant", "content": "驿站"}
    assert output_bytes({"choices": [{"message": message}, 5]}) == len(
        '[{"role":"assistant","content":"驿站"}]'.encode()
    )
    assert output_bytes({}) == output_bytes({"choices": None}) == 2
