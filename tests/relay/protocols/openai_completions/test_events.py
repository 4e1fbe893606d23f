"""Completions on their way through: what the client gets, and what is noted in passing, at every split."""

import doctest
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.protocols.openai_completions import events
from relay.protocols.openai_completions.events import finish_of_answer, is_complete_answer, output_bytes
from relay.protocols.usage import Usage
from tests.relay.protocols.openai_completions.texts import (
    BILL,
    DONE,
    HEL,
    LO,
    STOP,
    USAGE,
    WHOLE,
    choice,
    chunks,
    event,
    noted,
    read,
    splits,
)


def test_the_doctests_hold() -> None:
    assert doctest.testmod(events).failed == 0


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


def test_single_bytes_give_the_same_answer() -> None:
    assert read(*(WHOLE[at : at + 1] for at in range(len(WHOLE))))[0] == WHOLE


def test_the_client_sees_the_name_that_it_used() -> None:
    said = event(choice('say "model":"up"'))
    out, stream = read(HEL + said + LO + STOP + BILL + DONE, model='my "驿"')
    assert stream.answered_model == "up"
    assert {chunk["model"] for chunk in chunks(out)} == {'my "驿"'}
    assert chunks(out)[1]["choices"][0]["text"] == 'say "model":"up"'


def test_a_chunk_that_names_its_model_twice_passes_as_it_came() -> None:
    body = WHOLE.replace(b'"model":"up"', b'"model":"a","model":"up"')
    assert read(body, model="mine")[0] == body


def test_a_client_that_did_not_ask_sees_no_usage() -> None:
    out, stream = read(WHOLE, keep_usage=False)
    assert out == HEL + LO + STOP + DONE
    assert stream.usage == Usage(uncached_input=10, output=5)


def test_a_null_usage_is_taken_out_of_the_chunks_for_it() -> None:
    texts = [
        event(choice("x"), usage=None),
        event(choice("y"), usage=None),
        event(choice("", "stop"), usage=None),
    ]
    body = b"".join(texts) + BILL + DONE
    assert b"usage" not in read(body, keep_usage=False)[0]
    assert read(body)[0] == body


@pytest.mark.parametrize("keep_usage", [True, False])
def test_of_usage_in_every_chunk_the_last_wins(keep_usage: bool) -> None:
    body = b"".join(
        event(choice("x"), usage={"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n})
        for n in range(1, 6)
    )
    out, stream = read(body + STOP + DONE, model="mine", keep_usage=keep_usage)
    assert stream.usage == Usage(uncached_input=10, output=5)
    assert (b"usage" in out) is keep_usage
    assert [chunk["model"] for chunk in chunks(out)] == ["mine"] * 6


def test_a_cache_class_that_a_later_usage_leaves_out_is_kept() -> None:
    first = {**USAGE, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    _, stream = read(event(choice("x"), usage=first) + STOP + BILL + DONE)
    assert stream.usage == Usage(uncached_input=2, cached_input=8, output=5, flags=("total_mismatch",))


def test_several_choices_end_each_for_themselves() -> None:
    body = HEL + event(choice("b", index=1)) + STOP + event(choice("", "length", 1)) + STOP + BILL + DONE
    out, stream = read(body)
    ends = [
        (c["index"], c["finish_reason"])
        for chunk in chunks(out)
        for c in chunk["choices"]
        if c["finish_reason"]
    ]
    assert ends == [(0, "stop"), (1, "length")]
    assert (stream.finish_reason, stream.content_events) == ("stop", 2)


def test_an_end_with_text_counts_as_text() -> None:
    _, stream = read(event(choice("all of it", "length")) + DONE)
    assert (stream.content_events, stream.end_reason, stream.is_complete) == (1, "length", True)


def test_empty_texts_are_no_content() -> None:
    _, stream = read(HEL + event(choice("")) * 3 + STOP + DONE)
    assert stream.content_events == 1


def test_a_missing_end_marker_is_added() -> None:
    out, stream = read(HEL + STOP + BILL)
    assert out == HEL + STOP + BILL + DONE
    assert stream.is_complete


def test_what_follows_the_end_marker_is_dropped() -> None:
    assert read(WHOLE + HEL + DONE)[0] == WHOLE
    assert read(WHOLE, HEL)[0] == WHOLE


def test_comments_pass_behind_the_first_text_only() -> None:
    comment = b": hi\n\n"
    assert read(comment + HEL + comment + STOP + DONE)[0] == HEL + comment + STOP + DONE


def test_nothing_to_add_is_an_answer_if_it_was_counted() -> None:
    nothing = {"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 10}
    out, stream = read(STOP + event(usage=nothing) + DONE)
    assert stream.is_complete
    assert stream.usage == Usage(uncached_input=10)
    assert out == STOP + event(usage=nothing) + DONE


def test_done_without_a_finish_reason_is_complete_and_says_so() -> None:
    _, stream = read(HEL + DONE)
    assert (stream.is_complete, stream.end_reason) == (True, "done_without_finish")


@pytest.mark.parametrize("body", [b"", DONE, STOP + DONE, HEL, HEL + LO[:40], HEL + LO])
def test_an_answer_without_its_end_or_with_nothing_at_all_is_not_complete(body: bytes) -> None:
    assert not read(body)[1].is_complete


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'data: {"error":{"code":"overloaded"}}\n\n', "overloaded"),
        (b'data: {"base_resp":{"status_code":1002}}\n\n', "1002"),
        (b"data: {\n\n", "garbage"),
        (b"data: 5\n\n", "garbage"),
    ],
)
@pytest.mark.parametrize("before", [b"", HEL + LO])
def test_an_error_ends_the_stream_and_is_not_passed(raw: bytes, code: str, before: bytes) -> None:
    out, stream = read(before + raw + LO + DONE)
    assert out == before
    assert stream.error is not None
    assert stream.error["code"] == code
    assert not stream.is_complete


def test_an_error_in_a_text_is_text() -> None:
    said = event(choice('{"error":{"code":1}}'))
    out, stream = read(HEL + said + STOP + DONE)
    assert (out, stream.error) == (HEL + said + STOP + DONE, None)


PARTS = st.sampled_from(
    [
        HEL, LO, STOP, BILL, DONE, b": ping\n\n", b"\n", event(), event(choice("")), event(choice("x"), usage=None),
        event(choice("", "stop"), usage=USAGE), event(choice("x"), usage=USAGE), b"data: {\n\n", b"data: [DO",
        b"event: x\n\n", b'data: {"error":{"code":"e"}}\n\n', b"data:" + HEL[6:], b"retry: 1\n" + LO,
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


# Plain answers.


@pytest.mark.parametrize(
    ("answer", "is_complete"),
    [
        ({"choices": [choice("a", "stop")]}, True),
        ({"choices": [choice("", "stop"), choice("b", "stop", 1)]}, True),
        ({"choices": [choice("", "stop")], "usage": USAGE}, True),
        ({"choices": [choice("", "stop")]}, False),
        ({"choices": [choice("")], "usage": USAGE}, False),
        ({"choices": [choice("", "stop")], "usage": {"prompt_tokens": None}}, False),
        ({"choices": [], "usage": USAGE}, False),
        ({"choices": [5]}, False),
        ({}, False),
        ([], False),
    ],
)
def test_what_counts_as_an_answer(answer: Any, is_complete: bool) -> None:
    assert is_complete_answer(answer) is is_complete


def test_how_a_plain_answer_ended() -> None:
    assert finish_of_answer({"choices": [choice("a", "length")]}) == "length"
    assert finish_of_answer({"choices": []}) == ""
    assert finish_of_answer({"choices": [{"finish_reason": 5}]}) == ""


def test_how_much_text_a_plain_answer_holds() -> None:
    assert (
        output_bytes({"choices": [choice("驿站 and more"), choice("驿站", index=1), {"text": None}]})
        == 15 + 6
    )
    assert output_bytes({"choices": [choice("")]}) == output_bytes({}) == 0
