"""Everything that an upstream can do wrong, or just differently: what the client gets and what the books say."""

import gzip
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import Tenant, World

SHORT = {"first_token_s": 0.4, "idle_s": 0.4}
PLAIN_SHORT = {"total_s": 0.4}


@dataclass(frozen=True, slots=True)
class Failure:
    """What is expected of a call that fails.

    `status` is the client's (200: the error comes as an event of the stream), `code` is that of its error, `kind` that
    of the record. `delivered` counts content chunks before the failure.
    """

    directive: str
    status: int
    code: str | None
    kind: str
    delivered: int = 0
    timeouts: dict[str, float] | None = None
    record_status: str = "upstream_error"
    upstream_status: int | None = None
    retry_after: str | None = None
    usage_source: str = "estimated"


BEFORE = [
    Failure("role_only", 502, "upstream_error", "upstream_cut"),
    Failure("close=before", 502, "upstream_error", "upstream_cut"),
    Failure("end_after=0", 502, "upstream_error", "upstream_cut", upstream_status=200),
    Failure("empty_body", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("html", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("html,content_type=text/event-stream", 502, "upstream_error", "upstream_cut", upstream_status=200),
    Failure("error_body", 502, "upstream_error", "upstream_broke", upstream_status=200),
    Failure("error_event", 502, "upstream_error", "upstream_broke", upstream_status=200),
    Failure("error_event=0,status=429,error_code=rate_limit_exceeded", 503, "server_is_overloaded", "upstream_busy",
            upstream_status=200),
    Failure("error_event=0,error_code=1113", 503, "server_is_overloaded", "upstream_credential", upstream_status=200),
    Failure("garbage", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("headers_delay_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("ttft_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("stall_before_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("stall_before_ms=60000,comments=50", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("tokens=0,finish=none", 502, "upstream_error", "upstream_empty", upstream_status=200),
]  # fmt: skip
AFTER = [
    Failure("cut_after=5,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("cut_after=5,cut=reset,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("cut_after=5,cut_half,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("cut_after=1,reasoning=3", 200, "upstream_error", "upstream_cut", 1),
    Failure("cut_after=1,calls=1", 200, "upstream_error", "upstream_cut", 1),
    Failure("cut_after=5,usage_every,tokens=20", 200, "upstream_error", "upstream_cut", 5, usage_source="partial"),
    Failure("end_after=5,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("finish=none,done=none,tokens=4", 200, "upstream_error", "upstream_cut", 4),
    Failure("framing=short,tokens=4,done=none,finish=none", 200, "upstream_error", "upstream_cut", 4),
    Failure("framing=bad_chunk,tokens=4", 200, "upstream_error", "upstream_garbage", 1),
    Failure("error_event=5,tokens=20", 200, "upstream_error", "upstream_broke", 5),
    Failure("error_event=5,tokens=20,error_code=1302", 200, "server_is_overloaded", "upstream_busy", 5),
    Failure("garbage=5,tokens=20", 200, "upstream_error", "upstream_garbage", 5),
    Failure("stall_after=5,stall_ms=60000,tokens=20", 200, "upstream_timeout", "upstream_timeout", 5, timeouts=SHORT),
    Failure("tokens=500,gap_ms=20", 200, "upstream_timeout", "upstream_timeout", -1, timeouts=PLAIN_SHORT),
]  # fmt: skip
STATUSES = [
    Failure("status=429,retry_after=7", 503, "server_is_overloaded", "upstream_busy", upstream_status=429, retry_after="7"),
    Failure("status=429,retry_after=0.2", 503, "server_is_overloaded", "upstream_busy", upstream_status=429,
            retry_after="1"),
    Failure("status=429", 503, "server_is_overloaded", "upstream_busy", upstream_status=429),
    Failure("status=429,error_code=insufficient_quota", 503, "server_is_overloaded", "upstream_credential",
            upstream_status=429),
    Failure("status=401", 503, "server_is_overloaded", "upstream_credential", upstream_status=401),
    Failure("status=402", 503, "server_is_overloaded", "upstream_credential", upstream_status=402),
    Failure("status=403", 503, "server_is_overloaded", "upstream_credential", upstream_status=403),
    Failure("status=404", 502, "upstream_error", "upstream_broke", upstream_status=404),
    Failure("status=408", 504, "upstream_timeout", "upstream_timeout", upstream_status=408),
    Failure("status=500", 502, "upstream_error", "upstream_broke", upstream_status=500),
    Failure("status=503", 503, "server_is_overloaded", "upstream_busy", upstream_status=503),
    Failure("status=529", 503, "server_is_overloaded", "upstream_busy", upstream_status=529),
    Failure("status=520,html", 502, "upstream_error", "upstream_broke", upstream_status=520),
    Failure("status=524,html", 504, "upstream_timeout", "upstream_timeout", upstream_status=524),
    Failure("status=302,html", 502, "upstream_error", "upstream_broke", upstream_status=302),
]  # fmt: skip
REJECTED = ["status=400", "status=413", "status=422"]
PLAIN = [
    Failure("cut_after=1", 502, "upstream_error", "upstream_cut"),
    Failure("cut_after=1,cut=reset", 502, "upstream_error", "upstream_cut"),
    Failure("close=before", 502, "upstream_error", "upstream_cut"),
    Failure("framing=short", 502, "upstream_error", "upstream_cut"),
    Failure("framing=bad_chunk", 502, "upstream_error", "upstream_garbage"),
    Failure("end_after=1", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("garbage", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("html", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("empty", 502, "upstream_error", "upstream_empty", upstream_status=200),
    Failure("empty_body", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("error_body", 502, "upstream_error", "upstream_broke", upstream_status=200),
    Failure("error_event,error_code=rate_limit_exceeded", 503, "server_is_overloaded", "upstream_busy",
            upstream_status=200),
    Failure("headers_delay_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=PLAIN_SHORT),
    Failure("stall_after=1,stall_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=PLAIN_SHORT),
    Failure("slow_body_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=PLAIN_SHORT),
]  # fmt: skip


def content_count(answer: Answer) -> int:
    """How many chunks carry content."""
    deltas = [c["delta"] for chunk in answer.chunks for c in chunk.get("choices", ())]
    names = ("content", "reasoning_content", "tool_calls")
    return sum(any(delta.get(name) for name in names) for delta in deltas)


def check_failure(tenant: Tenant, answer: Answer, failure: Failure) -> None:
    assert answer.is_complete
    assert answer.status == failure.status
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["code"] == failure.code
    assert answer.headers.get("retry-after") == failure.retry_after
    assert "up-" not in answer.error["message"]
    assert "127.0.0.1" not in answer.error["message"]
    if failure.status == 200:
        assert not answer.is_done
        assert failure.delivered == -1 or content_count(answer) == failure.delivered
    else:
        assert answer.headers["content-type"] == "application/json"
    (record,) = tenant.check_books(1)
    assert (record.status, record.error_kind) == (failure.record_status, failure.kind)
    assert record.http_status == failure.status
    if failure.status != 200:
        assert (record.amount_nano, record.usage_source, record.ttft_ms) == (0, "", None)
        (attempt,) = record.attempts
        assert attempt["result"] == failure.kind
        assert attempt.get("http_status") == failure.upstream_status
        assert record.stages["upstream_wait"] > (record.total_ms / 2 if failure.timeouts else 0)
    else:
        assert record.usage_source == failure.usage_source
        assert failure.delivered == -1 or record.output_tokens == failure.delivered
        assert record.amount_nano == 2_000 * record.input_tokens + 10_000 * record.output_tokens > 0
        assert record.ttft_ms is not None


@pytest.mark.parametrize("failure", [*BEFORE, *AFTER, *STATUSES], ids=lambda failure: failure.directive)
def test_a_stream_that_fails(world: World, practice: PracticeProcess, failure: Failure) -> None:
    open_before = practice.stats()["open"]
    tenant = world.tenant(practice.url, timeouts=failure.timeouts)
    check_failure(tenant, tenant.stream(f"@practice {failure.directive}@"), failure)
    practice.wait_for(open=open_before)


@pytest.mark.parametrize("failure", [*PLAIN, *STATUSES], ids=lambda failure: failure.directive)
def test_a_plain_answer_that_fails(world: World, practice: PracticeProcess, failure: Failure) -> None:
    open_before = practice.stats()["open"]
    tenant = world.tenant(practice.url, timeouts=failure.timeouts)
    check_failure(tenant, tenant.ask(f"@practice {failure.directive}@"), failure)
    practice.wait_for(open=open_before)


@pytest.mark.parametrize("stream", [True, None])
@pytest.mark.parametrize("directive", REJECTED)
def test_an_upstreams_judgement_of_the_request_is_shown(
    world: World, practice: PracticeProcess, directive: str, stream: bool | None
) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream(
        f"@practice {directive},message=Too long.,error_type=invalid_request_error,error_code=context_length_exceeded@",
        stream=stream,
    )
    assert answer.status == int(directive.partition("=")[2])
    assert answer.error["message"] == "Too long."
    assert (answer.error["type"], answer.error["code"]) == (
        "invalid_request_error",
        "context_length_exceeded",
    )
    assert answer.headers["x-should-retry"] == "false"
    (record,) = tenant.check_books(1)
    assert (record.status, record.error_kind) == ("client_error", "upstream_rejected")
    assert record.amount_nano == 0


# Different, but right.

STREAM_VARIANTS = [
    "tokens=20", "pieces=1", "pieces=3,utf8", "pieces=7,crlf", "crlf", "cr", "cr,pieces=1", "comments",
    "comments,crlf", "comments=5,ttft_ms=60", "done=none", "done=none,crlf,pieces=2", "prelude", "gzip",
    "gzip,pieces=5", "framing=close", "framing=chunked", "close", "content_type=text/plain", "utf8",
    "reasoning=5,reasoning_key=reasoning", "reasoning=5", "calls=1", "calls=3", "pad=70000,tokens=20",
    "finish=length", "answer_model=other-name", 'answer_model=na"me', "error_event=900,tokens=5", "headers_delay_ms=30",
    "stall_after=3,stall_ms=60",
]  # fmt: skip
PLAIN_VARIANTS = [
    "tokens=20", "gzip", "pieces=1", "pieces=3,utf8", "gzip,pieces=4", "comments=5,ttft_ms=60", "framing=close",
    "framing=chunked", "close", "reasoning=5", "calls=2", "finish=length", "answer_model=other-name",
    'answer_model=na"me', "slow_body_ms=60", "content_type=text/plain",
]  # fmt: skip


def ask_directly(practice: PracticeProcess, tenant: Tenant, text: str, **fields: object) -> Answer:
    """The same call, made without the relay."""
    port = urlsplit(practice.url).port
    assert port is not None
    body = tenant.body(text, **{"model": "practice-fast", **fields})
    with RawClient(port) as client:
        client.request("POST", "/v1/chat/completions", {"authorization": "Bearer direct"}, body)
        answer = client.read_answer()
    if answer.headers.get("content-encoding") == "gzip":
        answer.pieces[:] = [gzip.decompress(answer.body)]
    return answer


def without_names(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk or answer without what differs from call to call."""
    return {name: value for name, value in chunk.items() if name not in ("id", "created", "model")}


@pytest.mark.parametrize("variant", STREAM_VARIANTS)
@pytest.mark.parametrize("asks", [True, False], ids=["usage asked", "usage not asked"])
def test_a_stream_that_is_only_different(
    world: World, practice: PracticeProcess, variant: str, asks: bool
) -> None:
    tenant = world.tenant(practice.url)
    text = f"@practice {variant}@"
    options = {"include_usage": True} if asks else None
    answer = tenant.stream(text, stream_options=options)
    assert answer.status == 200
    assert answer.is_done
    assert "content-encoding" not in answer.headers
    assert b"\r" not in answer.body
    direct = ask_directly(practice, tenant, text, stream=True, stream_options=options)
    said = [chunk for chunk in direct.chunks if chunk["choices"] or chunk.get("usage")]
    assert [without_names(chunk) for chunk in answer.chunks] == [without_names(chunk) for chunk in said]
    assert {chunk["model"] for chunk in answer.chunks} == {tenant.model.name}
    (record,) = tenant.check_books(1)
    assert (record.status, record.usage_source) == ("ok", "reported")
    usage = ask_directly(practice, tenant, text, stream=True, stream_options={"include_usage": True}).chunks[
        -1
    ]["usage"]
    assert (record.input_tokens, record.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])


@pytest.mark.parametrize("variant", PLAIN_VARIANTS)
def test_a_plain_answer_that_is_only_different(world: World, practice: PracticeProcess, variant: str) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.ask(f"@practice {variant}@")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert "content-encoding" not in answer.headers
    direct = ask_directly(practice, tenant, f"@practice {variant}@")
    assert without_names(answer.json) == without_names(direct.json)
    assert answer.json["model"] == tenant.model.name
    (record,) = tenant.check_books(1)
    usage = answer.json["usage"]
    assert (record.input_tokens, record.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])


@pytest.mark.parametrize("stream", [True, None])
@pytest.mark.parametrize("usage", ["openai", "kimi", "deepseek", "qwen", "vllm", "xai"])
def test_every_providers_usage_is_understood(
    world: World, practice: PracticeProcess, usage: str, stream: bool | None
) -> None:
    text = f"{'long ' * 3000} @practice usage={usage},tokens=9,reasoning=4@"
    tenant = world.tenant(practice.url)
    tenant.stream(text, stream=stream)
    answer = tenant.stream(text, stream=stream, stream_options={"include_usage": True} if stream else None)
    assert answer.status == 200
    record = tenant.record(answer)
    assert record.usage_source == "reported"
    assert record.cached_input_tokens > 1024
    assert 0 < record.uncached_input_tokens < record.cached_input_tokens
    assert (record.output_tokens, record.reasoning_tokens) == (13, 4)
    assert record.usage_flags == (["output_excluded_reasoning"] if usage == "xai" else [])
    if stream:
        assert [chunk for chunk in answer.chunks if chunk.get("usage")]
    tenant.check_books(2)


@pytest.mark.parametrize("asks", [True, False])
def test_usage_in_every_chunk_is_counted_once(world: World, practice: PracticeProcess, asks: bool) -> None:
    tenant = world.tenant(practice.url)
    options = {"include_usage": True} if asks else None
    answer = tenant.stream("@practice usage_every,tokens=12@", stream_options=options)
    assert answer.is_done
    assert any("usage" in chunk for chunk in answer.chunks) is asks
    (record,) = tenant.check_books(1)
    assert (record.output_tokens, record.usage_source) == (12, "reported")


@pytest.mark.parametrize("stream", [True, None])
def test_usage_that_is_never_reported_is_estimated(
    world: World, practice: PracticeProcess, stream: bool | None
) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("@practice usage=none,tokens=12@", stream=stream)
    assert answer.status == 200
    (record,) = tenant.check_books(1)
    assert (record.status, record.usage_source) == ("ok", "estimated")
    assert record.input_tokens > 10
    assert 8 <= record.output_tokens <= 40


def test_an_end_marker_without_a_finish_reason_is_an_end(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    assert tenant.stream("@practice finish=none@").is_done
    (record,) = tenant.check_books(1)
    assert (record.status, record.end_reason) == ("ok", "done_without_finish")


@pytest.mark.parametrize("stream", [True, None])
def test_several_choices_pass(world: World, practice: PracticeProcess, stream: bool | None) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("@practice tokens=5@", stream=stream, n=3)
    choices = (
        answer.json["choices"] if stream is None else [c for chunk in answer.chunks for c in chunk["choices"]]
    )
    assert {choice["index"] for choice in choices} == {0, 1, 2}
    assert sum(choice["finish_reason"] == "stop" for choice in choices) == 3
    (record,) = tenant.check_books(1)
    assert record.output_tokens == 15
