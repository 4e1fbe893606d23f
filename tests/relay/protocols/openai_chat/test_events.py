"""Chat streams on their way through: what the client gets, and what is noted in passing, at every split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.protocols.usage import Usage
from tests.relay.protocols.openai_chat.chunks import (
    BILL,
    DONE,
    HEL,
    LO,
    ROLE,
    STOP,
    TOOL,
    USAGE,
    WHOLE,
    choice,
    chunks,
    event,
    noted,
    read,
    splits,
)


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
