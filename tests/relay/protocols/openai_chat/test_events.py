"""Chat streams on their way through: what the client gets, and what is noted in passing, at every split."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.protocols.openai_chat.events import ChatStream, answer_error, has_content, is_complete_answer
from relay.protocols.usage import Usage

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def event(*choices: dict[str, Any], **fields: object) -> bytes:
    """One chunk as an upstream sends it."""
    chunk = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "up",
        "choices": list(choices),
    }
    return (
        b"data: "
        + json.dumps({**chunk, **fields}, separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n\n"
    )


def choice(
    delta: dict[str, Any], finish: str | None = None, index: int = 0, **fields: object
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish, **fields}


ROLE = event(choice({"role": "assistant", "content": ""}))
HEL, LO = event(choice({"content": "Hel"})), event(choice({"content": "lo 驿\u2028站 🐎"}))
STOP = event(choice({}, "stop"))
BILL = event(usage=USAGE)
DONE = b"data: [DONE]\n\n"
WHOLE = ROLE + HEL + LO + STOP + BILL + DONE
TOOL = event(
    choice(
        {
            "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
            ]
        }
    )
)


def read(
    *pieces: bytes, model: str = "up", keep_usage: bool = True, is_ended: bool = True
) -> tuple[bytes, ChatStream]:
    """What goes to the client of an answer that comes in these pieces, and the stream as it stands then."""
    stream = ChatStream(client_model=model, keep_usage=keep_usage)
    out = b"".join(stream.feed(piece) for piece in pieces)
    if is_ended and not stream.done:
        out += stream.finish()
    return out, stream


def noted(stream: ChatStream) -> dict[str, object]:
    """Everything that the books and the commit point look at."""
    return {
        name: getattr(stream, name)
        for name in (
            "content_events", "done", "error", "finish_reason", "usage", "answered_model", "service_tier",
            "is_complete", "end_reason",
        )
    }  # fmt: skip


def chunks(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(part[6:]) for part in out.split(b"\n\n") if part and part != b"data: [DONE]"]


def splits(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    for at in range(len(body) + 1):
        yield body[:at], body[at:]


def test_it_works() -> None:
    out, stream = read(WHOLE)
    assert out == WHOLE
    assert noted(stream) == {
        "content_events": 2,
        "done": True,
        "error": None,
        "finish_reason": "stop",
        "usage": Usage(uncached_input=10, output=5),
        "answered_model": "up",
        "service_tier": "",
        "is_complete": True,
        "end_reason": "stop",
    }


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("keep_usage", [True, False])
@pytest.mark.parametrize("model", ["up", "mine"])
def test_every_split_gives_the_same_answer(line_end: bytes, keep_usage: bool, model: str) -> None:
    body = (b": hi\n\n" + WHOLE).replace(b"\n", line_end)
    whole, stream = read(body, model=model, keep_usage=keep_usage)
    for pieces in splits(body):
        out, split = read(*pieces, model=model, keep_usage=keep_usage)
        assert out == whole
        assert noted(split) == noted(stream)


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
def test_other_line_ends_reach_the_client_as_line_feeds(line_end: bytes) -> None:
    assert read(WHOLE.replace(b"\n", line_end))[0] == WHOLE


def test_single_bytes_give_the_same_answer() -> None:
    assert read(*(WHOLE[at : at + 1] for at in range(len(WHOLE))))[0] == WHOLE


# The model's name.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b'"model":', b'"up"'),
        (b'"model": ', b'"up"'),
        (b'"model" : ', b'"up"'),
        (b'"model":  ', b'"u\\u0070"'),
        (b'"mod\\u0065l":', b'"up"'),
    ],
)
@pytest.mark.parametrize("keep_usage", [True, False])
def test_the_client_sees_the_name_that_it_used(name: bytes, value: bytes, keep_usage: bool) -> None:
    body = WHOLE.replace(b'"model":"up"', name + value)
    out, stream = read(body, model='my "驿"', keep_usage=keep_usage)
    assert stream.answered_model == "up"
    expected = WHOLE if keep_usage else WHOLE.replace(BILL, b"")
    assert out == expected.replace(b'"model":"up"', name + '"my \\"驿\\""'.encode())


def test_a_chunk_that_names_its_model_twice_passes_as_it_came() -> None:
    body = WHOLE.replace(b'"model":"up"', b'"model":"a","model":"up"')
    assert read(body, model="mine")[0] == body


def test_a_chunk_without_a_model_keeps_none() -> None:
    first = event(choice({"role": "assistant"}), model="")
    out, stream = read(first + HEL + STOP + DONE, model="mine")
    assert [chunk["model"] for chunk in chunks(out)] == ["", "mine", "mine"]
    assert stream.answered_model == "up"


def test_content_that_looks_like_the_name_stays() -> None:
    said = event(choice({"content": 'say "model":"up"'}))
    out, _ = read(ROLE + said + STOP + DONE, model="mine")
    assert chunks(out)[1]["choices"][0]["delta"]["content"] == 'say "model":"up"'


# Usage.


def test_a_client_that_did_not_ask_sees_no_usage() -> None:
    out, stream = read(WHOLE, keep_usage=False)
    assert out == ROLE + HEL + LO + STOP + DONE
    assert stream.usage == Usage(uncached_input=10, output=5)


def test_a_null_usage_is_taken_out_of_the_chunks_for_it() -> None:
    body = b"".join(
        event(choice(delta, finish), usage=None)
        for delta, finish in (
            ({"role": "assistant"}, None),
            ({"content": "x"}, None),
            ({"content": "y"}, None),
            ({}, "stop"),
        )
    )
    out, _ = read(body + BILL + DONE, keep_usage=False)
    assert b"usage" not in out
    assert read(body + BILL + DONE)[0] == body + BILL + DONE


@pytest.mark.parametrize("keep_usage", [True, False])
def test_of_usage_in_every_chunk_the_last_wins(keep_usage: bool) -> None:
    body = b"".join(
        event(
            choice({"content": "x"}),
            usage={"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n},
        )
        for n in range(1, 6)
    )
    out, stream = read(body + STOP + DONE, keep_usage=keep_usage)
    assert stream.usage == Usage(uncached_input=10, output=5)
    assert (b"usage" in out) is keep_usage
    assert len(chunks(out)) == 6


def test_a_cache_class_that_a_later_usage_leaves_out_is_kept() -> None:
    first = {**USAGE, "prompt_tokens_details": {"cached_tokens": 8}}
    _, stream = read(event(choice({"content": "x"}), usage=first) + STOP + BILL + DONE)
    assert stream.usage == Usage(uncached_input=2, cached_input=8, output=5)


def test_usage_on_the_last_chunk_with_a_choice() -> None:
    last = event(choice({}, "stop"), usage=USAGE)
    out, stream = read(ROLE + HEL + last + DONE, keep_usage=False)
    assert stream.usage == Usage(uncached_input=10, output=5)
    assert chunks(out)[-1]["choices"] == [choice({}, "stop")]
    assert "usage" not in chunks(out)[-1]
    assert read(ROLE + HEL + last + DONE)[0] == ROLE + HEL + last + DONE


def test_usage_hidden_in_a_choice_is_shown_to_a_client_that_asked() -> None:
    last = event(choice({}, "stop", usage={**USAGE, "cached_tokens": 8}))
    out, stream = read(ROLE + HEL + last + DONE)
    assert stream.usage == Usage(uncached_input=2, cached_input=8, output=5)
    shown = chunks(out)[-1]
    assert shown["choices"] == []
    assert shown["usage"]["prompt_tokens"] == 10
    assert shown["usage"]["prompt_tokens_details"]["cached_tokens"] == 8
    assert shown["id"] == "c1"
    assert out.endswith(DONE)
    hidden, _ = read(ROLE + HEL + last + DONE, keep_usage=False)
    assert b"usage" not in hidden
    assert chunks(hidden)[-1]["choices"][0]["finish_reason"] == "stop"


def test_usage_in_content_is_text() -> None:
    said = event(choice({"content": '{"usage":{"prompt_tokens":9}}'}))
    _, stream = read(ROLE + HEL + said + STOP + DONE)
    assert stream.usage is None


# Ends.


def test_a_missing_end_marker_is_added() -> None:
    out, stream = read(ROLE + HEL + STOP + BILL)
    assert out == ROLE + HEL + STOP + BILL + DONE
    assert stream.is_complete


def test_an_answer_without_its_last_empty_line_is_complete() -> None:
    assert read(WHOLE[:-2])[0] == WHOLE
    assert read(WHOLE[:-1])[0] == WHOLE


def test_what_follows_the_end_marker_is_dropped() -> None:
    assert read(WHOLE + HEL + DONE)[0] == WHOLE
    assert read(WHOLE, HEL)[0] == WHOLE


def test_a_finish_reason_is_passed_once_for_each_choice() -> None:
    body = ROLE + HEL + STOP + event(choice({}, "stop", 1)) + STOP + event(choice({}, "length", 1)) + DONE
    out, stream = read(body)
    found = [
        (c["index"], c["finish_reason"])
        for chunk in chunks(out)
        for c in chunk["choices"]
        if c["finish_reason"]
    ]
    assert found == [(0, "stop"), (1, "stop")]
    assert stream.finish_reason == "stop"


def test_a_repeated_finish_with_the_usage_keeps_the_usage() -> None:
    out, stream = read(ROLE + HEL + STOP + event(choice({}, "stop"), usage=USAGE) + DONE)
    assert stream.usage == Usage(uncached_input=10, output=5)
    assert sum("usage" in chunk for chunk in chunks(out)) == 1


def test_done_without_a_finish_reason_is_complete_and_says_so() -> None:
    _, stream = read(ROLE + HEL + DONE)
    assert stream.is_complete
    assert stream.end_reason == "done_without_finish"


@pytest.mark.parametrize(
    "body", [b"", ROLE, DONE, ROLE + DONE, ROLE + STOP + DONE, ROLE + HEL, ROLE + HEL + LO[:40], ROLE + TOOL]
)
def test_an_answer_without_its_end_or_without_content_is_not_complete(body: bytes) -> None:
    out, stream = read(body)
    assert not stream.is_complete
    assert ROLE + HEL not in body or DONE not in out


def test_an_empty_answer_with_output_in_its_usage_is_complete() -> None:
    assert read(ROLE + event(choice({}, "length")) + BILL + DONE)[1].is_complete


# What is no content, and what goes wrong.


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


def test_errors_inside_a_plain_answer() -> None:
    assert answer_error({"error": {"code": 1}}) == {"code": 1}
    assert answer_error({"error": "no"}) == {"message": "no"}
    assert answer_error({"base_resp": {"status_code": 1002, "status_msg": "x"}}) == {
        "code": "1002",
        "message": "x",
    }
    for answer in ({}, {"error": None}, {"error": {}}, {"base_resp": {"status_code": 0}}, [], None, "x"):
        assert answer_error(answer) is None


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


PARTS = st.sampled_from(
    [
        ROLE, HEL, LO, STOP, BILL, DONE, TOOL, b": ping\n\n", b"\n", event(),
        event(choice({"content": "x"}), usage=None),
        event(choice({}, "stop", usage=USAGE)), event(choice({"reasoning": "r"}), usage=USAGE), b"data: {\n\n",
        b"data: [DO", b"event: x\n\n", b'data: {"error":{"code":"e"}}\n\n', b"data:" + HEL[6:], b"retry: 1\n" + LO,
    ]
)  # fmt: skip


@given(
    st.lists(PARTS, max_size=8),
    st.lists(st.integers(0, 1500), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.booleans(),
    st.sampled_from(["up", "mine"]),
)
def test_any_split_of_any_answer_gives_the_same(
    parts: list[bytes], cuts: list[int], line_end: bytes, keep_usage: bool, model: str
) -> None:
    body = b"".join(parts).replace(b"\n", line_end)
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    pieces = [body[first:last] for first, last in pairwise(places)]
    whole, stream = read(body, model=model, keep_usage=keep_usage)
    out, split = read(*pieces, model=model, keep_usage=keep_usage)
    assert out == whole
    assert noted(split) == noted(stream)
    assert keep_usage or b'"usage":{' not in whole
    assert stream.error is None or not stream.is_complete
