"""The completions form: requests that are read, answers as they go out."""

import json
from typing import Any

import pytest

from practice.forms.completions.request import read_prompt
from practice.refusal import Refusal
from tests.practice.forms.asking import ask, events, texts_of


def prompt(**fields: object) -> Any:
    return read_prompt({"model": "practice-fast", "prompt": "Once", **fields})


def complete(text: object = "Once", **fields: object) -> dict[str, Any]:
    return ask("/v1/completions", {"model": "practice-fast", "prompt": text, **fields})


def stream(text: object = "Once", **fields: object) -> list[Any]:
    return events("/v1/completions", {"model": "practice-fast", "prompt": text, "stream": True, **fields})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"prompt": None}, "prompt"),
        ({"n": 0}, "n"),
        ({"n": "1"}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        prompt(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_an_answer_has_sixteen_tokens_unless_told() -> None:
    answer = complete()
    assert answer["id"].startswith("cmpl-practice")
    assert (answer["object"], answer["model"]) == ("text_completion", "practice-fast")
    assert answer["usage"]["completion_tokens"] == 16
    (choice,) = answer["choices"]
    assert set(choice) == {"text", "index", "logprobs", "finish_reason"}
    assert choice["text"].startswith("Practice text")
    assert (choice["finish_reason"], choice["logprobs"]) == ("length", None)
    assert complete(max_tokens=200)["choices"][0]["finish_reason"] == "stop"


def test_a_stream_says_what_its_whole_says() -> None:
    chunks = stream(max_tokens=40)
    assert chunks[-1] == "[DONE]"
    assert {chunk["object"] for chunk in chunks[:-1]} == {"text_completion"}
    assert texts_of(chunks) == {0: complete(max_tokens=40)["choices"][0]["text"]}
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert not any("usage" in chunk for chunk in chunks[:-1])


def test_usage_comes_last_when_asked_for() -> None:
    chunks = stream(stream_options={"include_usage": True})
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"]["completion_tokens"] == 16
    assert all(chunk["usage"] is None for chunk in chunks[:-2])


def test_every_prompt_gets_its_answers() -> None:
    answer = complete(["a" * 40, "b" * 80], n=2, max_tokens=5)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 30
    assert answer["usage"]["completion_tokens"] == 20
    assert sorted(texts_of(stream(["a", "b"], n=2, max_tokens=5))) == [0, 1, 2, 3]


def test_the_best_of_several_is_shown_and_all_are_counted() -> None:
    answer = complete(["a", "b"], best_of=3, max_tokens=5)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"]["completion_tokens"] == 30


def test_the_prompt_is_said_again_when_asked_for() -> None:
    answer = complete(["Once", "Twice"], echo=True, max_tokens=3)
    assert [
        choice["text"].startswith(text)
        for choice, text in zip(answer["choices"], ("Once", "Twice"), strict=True)
    ]
    assert answer["usage"]["completion_tokens"] == 6
    silent = complete("Once", echo=True, max_tokens=0)
    assert silent["choices"][0]["text"] == "Once"
    assert silent["usage"]["completion_tokens"] == 0
    assert texts_of(stream("Once", echo=True, max_tokens=0)) == {0: "Once"}
    assert complete([5, 6], echo=True)["choices"][0]["text"].startswith("<2 tokens>")


def test_logprobs_stand_beside_the_pieces() -> None:
    choice = complete(logprobs=2, max_tokens=4)["choices"][0]
    said = choice["logprobs"]
    assert "".join(said["tokens"]) == choice["text"]
    assert len(said["token_logprobs"]) == len(said["top_logprobs"]) == len(said["text_offset"]) == 4
    chunks = stream(logprobs=2, max_tokens=4)
    offsets = [chunk["choices"][0]["logprobs"]["text_offset"][0] for chunk in chunks[:-2]]
    assert offsets == said["text_offset"]


def test_a_suffix_is_part_of_what_was_read() -> None:
    assert complete("a" * 40, suffix="b" * 40)["usage"]["prompt_tokens"] > 20


def test_tokens_count_as_what_they_are() -> None:
    assert complete([[1, 2, 3], [4]])["usage"]["prompt_tokens"] == 4


def test_stop_strings_end_an_answer() -> None:
    choice = complete(stop=["text"], max_tokens=50)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("Practice ", "stop")


@pytest.mark.parametrize("kind", ["none", "kimi", "deepseek", "vllm"])
def test_usage_is_spelled_as_asked_for(kind: str) -> None:
    chunks = stream(f"@practice usage={kind}@", stream_options={"include_usage": True})
    reported = [chunk for chunk in chunks[:-1] if chunk.get("usage")]
    inner = [chunk for chunk in chunks[:-1] if chunk["choices"] and chunk["choices"][0].get("usage")]
    assert (bool(reported), bool(inner)) == (kind in ("deepseek", "vllm"), kind == "kimi")


def test_the_cache_knows_prompts_too() -> None:
    first, second = ask(
        "/v1/completions", *[{"model": "practice-fast", "prompt": "word " * 2000}] * 2, is_all=True
    )
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 2432


def test_a_prompt_beyond_the_window_is_refused_and_two_within_it_are_not() -> None:
    assert complete("w" * 262_144 * 4)["error"]["code"] == "context_length_exceeded"
    assert "choices" in complete(["w" * 200_000 * 4] * 2)


def test_directives_work_in_prompts() -> None:
    assert complete("@practice status=429@")["error"]["code"] == "rate_limit_exceeded"
    chunks = stream("@practice error_event=2@", max_tokens=9)
    assert len(chunks) == 3
    assert json.dumps(chunks[-1]).startswith('{"error"')
