"""Every directive over a real socket: one case for each key."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable

import pytest

from practice.directives import KEYS
from practice.script import GARBAGE

CASES: dict[str, Callable[..., Awaitable[None]]] = {}


def case(*keys: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    def keep(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        CASES.update(dict.fromkeys(keys, function))
        return function

    return keep


@pytest.mark.parametrize("key", sorted(KEYS))
async def test_a_directive_does_what_it_says(practice, key: str) -> None:
    await CASES[key](practice)


def events(body: bytes) -> list[dict[str, object]]:
    """The JSON of every event but the end marker."""
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def contents(body: bytes) -> list[str]:
    deltas = [choice["delta"] for event in events(body) for choice in event.get("choices", [])]
    return [delta["content"] for delta in deltas if delta.get("content")]


def unchunk(answer: bytes) -> tuple[bytes, bytes, bool]:
    """Head, body as far as it came, and whether it came to its end."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return head, body, True
        body, rest = body + rest[:length], rest[length + 2 :]
    return head, body, False


@case("status", "message", "error_type", "error_code", "retry_after", "should_retry")
async def _fails(practice) -> None:
    for stream in (False, True):
        answer = await practice.ask(
            "@practice status=429,message=not now%2C later,error_type=t,error_code=c@"
            "@practice retry_after=1.5,should_retry=no@",
            stream=stream,
        )
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1.5"
        assert answer.headers["x-should-retry"] == "false"
        assert answer.json() == {
            "error": {"message": "not now, later", "type": "t", "param": None, "code": "c"}
        }
    for status, code in (
        (401, "invalid_api_key"),
        (404, "model_not_found"),
        (500, None),
        (503, "server_is_overloaded"),
    ):
        answer = await practice.ask(f"@practice status={status}@")
        assert (answer.status, answer.json()["error"]["code"]) == (status, code)
        assert "retry-after" not in answer.headers


@case("html")
async def _shows_a_page(practice) -> None:
    answer = await practice.ask("@practice html@", stream=True)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body.startswith(b"<!DOCTYPE html>")
    assert (await practice.ask("@practice html,status=502@")).status == 502


@case("error_body")
async def _fails_with_200(practice) -> None:
    for stream in (False, True):
        answer = await practice.ask("@practice error_body,message=busy,status=503@", stream=stream)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json()["error"]["message"] == "busy"
        assert answer.json()["error"]["code"] == "server_is_overloaded"


@case("empty")
async def _says_nothing(practice) -> None:
    answer = await practice.ask("@practice empty@")
    assert (answer.status, answer.json()["choices"]) == (200, [])
    assert [
        event["choices"] for event in events((await practice.ask("@practice empty@", stream=True)).body)
    ] == [[]]


@case("empty_body")
async def _has_no_body(practice) -> None:
    answer = await practice.ask("@practice empty_body@", stream=True)
    assert (answer.status, answer.body) == (200, b"")


@case("close")
async def _closes(practice) -> None:
    assert await practice.ask_raw("@practice close=before@") == b""
    for stream in (False, True):
        answer = await practice.ask_raw("@practice close,tokens=1@", stream=stream)
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.endswith(b"\r\n0\r\n\r\n" if stream else b"}")


@case("headers_delay_ms")
async def _waits_with_the_head(practice) -> None:
    await takes_at_least(practice, "headers_delay_ms=60,tokens=1", 0.06)


@case("ttft_ms")
async def _waits_for_the_first_token(practice) -> None:
    await takes_at_least(practice, "ttft_ms=60,tokens=1", 0.06)


@case("stall_before_ms")
async def _stalls_before_the_first_token(practice) -> None:
    client = await practice.connect()
    client.post("@practice stall_before_ms=600000@", stream=True)
    assert b'"role":"assistant"' in await client.read_until(b"\n\n\r\n")
    plain = await practice.connect()
    plain.post("@practice stall_before_ms=600000@")
    assert (await plain.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
    await practice.stats_reach(open=2)


@case("gap_ms")
async def _keeps_another_pace(practice) -> None:
    await takes_at_least(practice, "gap_ms=20,tokens=4", 0.06)


@case("stall_after", "stall_ms")
async def _stalls_in_the_middle(practice) -> None:
    await takes_at_least(practice, "stall_after=2,stall_ms=60,tokens=4", 0.06)
    client = await practice.connect()
    client.post("@practice stall_after=2,stall_ms=600000,tokens=4@", stream=True)
    assert await client.read_until(b'"content":"tice"')
    await practice.stats_reach(open=1)


@case("slow_body_ms")
async def _drips(practice) -> None:
    await takes_at_least(practice, "slow_body_ms=60", 0.06, stream=False)


async def takes_at_least(practice, text: str, wanted_s: float, *, stream: bool = True) -> None:
    """Not a measurement: a wait can be longer on a busy machine, never shorter."""
    started = asyncio.get_running_loop().time()
    answer = await practice.ask(f"@practice {text}@", stream=stream)
    assert answer.status == 200
    assert asyncio.get_running_loop().time() - started >= wanted_s


@case("comments")
async def _comments(practice) -> None:
    body = (await practice.ask("@practice comments,tokens=2@", stream=True)).body
    assert body.count(b": keep-alive\n\n") == 5
    assert contents(body) == ["Prac", "tice"]
    body = (await practice.ask("@practice comments=10,ttft_ms=35,tokens=2@", stream=True)).body
    assert body.count(b": keep-alive\n\n") == 8
    plain = await practice.ask("@practice comments=10,ttft_ms=35,tokens=1,gap_ms=0@")
    assert plain.body.startswith(b"\n\n\n{")
    assert plain.json()["choices"]


@case("tokens")
async def _says_so_much(practice) -> None:
    assert len(contents((await practice.ask("@practice tokens=1000@", stream=True)).body)) == 1000
    assert (await practice.ask("@practice tokens=7@")).json()["usage"]["completion_tokens"] == 7


@case("reasoning", "reasoning_key")
async def _reasons(practice) -> None:
    answer = await practice.ask("@practice reasoning=3,reasoning_key=reasoning@")
    assert answer.json()["choices"][0]["message"]["reasoning"] == "Practice rea"
    assert answer.json()["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


@case("calls")
async def _calls(practice) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
    message = (await practice.ask("@practice calls=2@", tools=tools)).json()["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["a", "b"]


@case("pad")
async def _pads(practice) -> None:
    body = (await practice.ask("@practice pad=5000,tokens=3@", stream=True)).body
    assert [len(text) for text in contents(body)] == [5000] * 3


@case("utf8", "pieces")
async def _splits_characters(practice) -> None:
    for size in (1, 2, 3, 7):
        answer = await practice.ask(f"@practice utf8,tokens=60,pieces={size}@", stream=True)
        assert {len(piece) for piece in answer.pieces[:-1]} <= {size, *range(1, size)}
        assert len(answer.pieces) >= len(answer.body) / size
        text = "".join(contents(answer.body))
        assert len(text.encode()) > len(text)
        if size < 4:
            assert any(piece[0] & 0xC0 == 0x80 for piece in answer.pieces)
    plain = await practice.ask_raw("@practice pieces=1,close@")
    assert json.loads(plain.partition(b"\r\n\r\n")[2])["choices"]


@case("piece_gap_ms")
async def _waits_between_pieces(practice) -> None:
    await takes_at_least(practice, "pieces=100,piece_gap_ms=10", 0.06, stream=False)


@case("finish")
async def _finishes_otherwise(practice) -> None:
    body = (await practice.ask("@practice finish=insufficient_system_resource,tokens=1@", stream=True)).body
    assert events(body)[-1]["choices"][0]["finish_reason"] == "insufficient_system_resource"


@case("answer_model")
async def _answers_as_another(practice) -> None:
    assert (await practice.ask("@practice answer_model=gpt-9@")).json()["model"] == "gpt-9"


@case("usage")
async def _spells_usage(practice) -> None:
    long = "word " * 2000
    for stream in (False, True):
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        await practice.ask(long, **options)
        answer = await practice.ask(long + "@practice usage=deepseek@", **options)
        usage = events(answer.body)[-1]["usage"] if stream else answer.json()["usage"]
        assert usage["prompt_cache_hit_tokens"] == 2432
    assert "usage" not in (await practice.ask("@practice usage=none@")).json()


@case("usage_every")
async def _tells_usage_on_every_chunk(practice) -> None:
    said = events((await practice.ask("@practice usage_every,tokens=3@", stream=True)).body)
    assert [event["usage"]["completion_tokens"] for event in said] == [0, 1, 2, 3, 3]


@case("cut_after", "role_only", "cut_half", "cut")
async def _is_cut(practice) -> None:
    _, body, ended = unchunk(await practice.ask_raw("@practice cut_after=2@", stream=True))
    assert (contents(body), ended) == (["Prac", "tice"], False)
    for text in ("cut_after=0", "role_only"):
        _, body, ended = unchunk(await practice.ask_raw(f"@practice {text}@", stream=True))
        assert (len(events(body)), contents(body), ended) == (1, [], False)
    _, body, ended = unchunk(await practice.ask_raw("@practice cut_after=1,cut_half@", stream=True))
    assert not body.endswith(b"\n\n")
    assert b'{"content":"Prac"}' in body
    whole = await practice.ask_raw("@practice cut_after=1@")
    length = int(whole.partition(b"content-length: ")[2].split(b"\r\n")[0])
    assert 0 < len(whole.partition(b"\r\n\r\n")[2]) < length
    client = await practice.connect()
    client.post("@practice cut_after=1,cut=reset,gap_ms=20@", stream=True)
    await client.read_until(b'"Prac"')
    with pytest.raises(ConnectionResetError):
        await client.read_all()


@case("end_after")
async def _ends_early(practice) -> None:
    client = await practice.connect()
    client.post("@practice end_after=2@", stream=True)
    answer = await client.read_answer()
    assert contents(answer.body) == ["Prac", "tice"]
    assert b'"finish_reason":"' not in answer.body
    assert b"[DONE]" not in answer.body
    client.post("@practice end_after=2@")
    with pytest.raises(json.JSONDecodeError):
        (await client.read_answer()).json()


@case("error_event")
async def _fails_in_the_stream(practice) -> None:
    answer = await practice.ask("@practice error_event=1,status=503,message=gone@", stream=True)
    said = events(answer.body)
    assert (answer.status, contents(answer.body)) == (200, ["Prac"])
    assert said[-1] == {
        "error": {
            "message": "gone",
            "type": "service_unavailable_error",
            "param": None,
            "code": "server_is_overloaded",
        }
    }
    assert b"[DONE]" not in answer.body
    plain = await practice.ask("@practice error_event,status=503@")
    assert (plain.status, plain.json()["error"]["code"]) == (200, "server_is_overloaded")


@case("garbage")
async def _sends_garbage(practice) -> None:
    body = (await practice.ask("@practice garbage=1,tokens=3@", stream=True)).body
    assert b"data: " + GARBAGE + b"\n\n" in body
    assert b'"content":"Prac"' in body
    assert b'"content":"tice"' not in body
    assert body.endswith(b"data: [DONE]\n\n")
    assert (await practice.ask("@practice garbage@")).body == GARBAGE


@case("done")
async def _leaves_done_out(practice) -> None:
    body = (await practice.ask("@practice done=none,tokens=1@", stream=True)).body
    assert b"[DONE]" not in body
    assert events(body)[-1]["choices"][0]["finish_reason"] == "stop"


@case("prelude")
async def _begins_with_no_choices(practice) -> None:
    assert events((await practice.ask("@practice prelude@", stream=True)).body)[0]["choices"] == []


@case("crlf", "cr")
async def _ends_lines_otherwise(practice) -> None:
    for key, end in (("crlf", b"\r\n"), ("cr", b"\r")):
        body = (await practice.ask(f"@practice {key},tokens=2@", stream=True)).body
        assert body.count(end + end) == 5
        assert body.replace(end, b"").count(b"\n") == 0


@case("gzip")
async def _packs(practice) -> None:
    for stream in (False, True):
        answer = await practice.ask("@practice gzip,tokens=2@", stream=stream)
        assert answer.headers["content-encoding"] == "gzip"
        assert b"chatcmpl-practice" in gzip.decompress(answer.body)


@case("framing")
async def _frames_otherwise(practice) -> None:
    answer = await practice.ask_raw("@practice framing=close@", stream=True)
    assert answer.endswith(b"\n\ndata: [DONE]\n\n")
    answer = await practice.ask_raw("@practice framing=short@")
    assert int(answer.partition(b"content-length: ")[2].split(b"\r\n")[0]) > len(answer)
    for stream in (False, True):
        assert (await practice.ask_raw("@practice framing=bad_chunk@", stream=stream)).endswith(b"\r\nzz\r\n")
    plain = await practice.ask("@practice framing=chunked@")
    assert plain.headers["transfer-encoding"] == "chunked"
    assert plain.json()["choices"]


@case("content_type")
async def _names_another_type(practice) -> None:
    answer = await practice.ask("@practice content_type=text/plain@", stream=True)
    assert answer.headers["content-type"] == "text/plain"


async def test_a_mistake_in_a_directive_is_told(practice) -> None:
    answer = await practice.ask("@practice statsu=500@", stream=True)
    assert answer.status == 400
    assert "unknown key 'statsu'" in answer.json()["error"]["message"]
