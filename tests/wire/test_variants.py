"""What upstreams do differently, and rightly: the client gets the answer that it would get without us.

All the calls are made side by side, once for the module, and once more directly; each test compares two of them.
"""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from billing.models import UsageRecord
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer, RawClient
from tests.fakes.relay_process import RelayProcess
from tests.wire.world import Tenant, World, at_once

STREAM = [
    "tokens=20", "pieces=1", "pieces=3,utf8", "pieces=7,crlf", "crlf", "cr", "cr,pieces=1", "comments",
    "comments,crlf", "comments=5,ttft_ms=60", "done=none", "done=none,crlf,pieces=2", "prelude", "gzip",
    "gzip,pieces=5", "framing=close", "framing=chunked", "close", "content_type=text/plain", "utf8",
    "reasoning=5,reasoning_key=reasoning", "reasoning=5", "calls=1", "calls=3", "pad=70000,tokens=20",
    "finish=length", "answer_model=other-name", 'answer_model=na"me', "error_event=900,tokens=5", "headers_delay_ms=30",
    "stall_after=3,stall_ms=60",
]  # fmt: skip
PLAIN = [
    "tokens=20", "gzip", "pieces=1", "pieces=3,utf8", "gzip,pieces=4", "comments=5,ttft_ms=60", "framing=close",
    "framing=chunked", "close", "reasoning=5", "calls=2", "finish=length", "answer_model=other-name",
    'answer_model=na"me', "slow_body_ms=60", "content_type=text/plain",
]  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }
    for name in ("look_up", "book")
]
ASKS = {"include_usage": True}


@dataclass(frozen=True, slots=True)
class Played:
    """The answers by the names of their calls, the same calls made directly, and the records by their ids."""

    tenant: Tenant
    answers: dict[str, Answer]
    direct: dict[str, Answer]
    records: dict[str, UsageRecord]

    def of(self, name: str) -> tuple[Answer, Answer, UsageRecord]:
        for answer in (self.answers[name], self.direct[name]):
            if isinstance(answer, BaseException):
                raise answer
        return self.answers[name], self.direct[name], self.records[self.answers[name].call_id]


def all_calls() -> dict[str, dict[str, Any]]:
    """The fields of each request, by its name."""
    calls: dict[str, dict[str, Any]] = {}
    for variant in STREAM:
        for options in (ASKS, None):
            name = f"stream {variant} {'asked' if options else 'not asked'}"
            calls[name] = {"text": f"@practice {variant}@", "stream": True, "stream_options": options}
    for variant in PLAIN:
        calls[f"plain {variant}"] = {"text": f"@practice {variant}@", "stream": None}
    for fields in calls.values():
        fields["tools"] = TOOLS if "calls=" in fields["text"] else None
    return calls


def directly(port: int, tenant: Tenant, fields: dict[str, Any]) -> Answer:
    """A call that is made without the relay."""
    body = tenant.body(**{**fields, "model": "practice-fast"})
    with RawClient(port) as client:
        client.request("POST", "/v1/chat/completions", {"authorization": "Bearer direct"}, body)
        answer = client.read_answer()
    if answer.headers.get("content-encoding") == "gzip":
        answer.pieces[:] = [gzip.decompress(answer.body)]
    return answer


@pytest.fixture(scope="module")
def played(relay: RelayProcess, practice: PracticeProcess, django_db_blocker) -> Iterator[Played]:
    """All of it at once."""
    port = urlsplit(practice.url).port
    assert port is not None
    with django_db_blocker.unblock():
        world = World(relay)
        tenant = world.tenant(practice.url)
        calls = all_calls()
        through: dict[str, Callable[[], Answer]] = {
            name: partial(tenant.stream, **fields) for name, fields in calls.items()
        }
        beside: dict[str, Callable[[], Answer]] = {
            name: partial(directly, port, tenant, fields) for name, fields in calls.items()
        }
        answers, direct = at_once(through), at_once(beside)
        records = tenant.check_books(len(calls))
        yield Played(tenant, answers, direct, {str(record.id): record for record in records})
        world.close()


def without_names(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk or answer without what differs from call to call."""
    return {name: value for name, value in chunk.items() if name not in ("id", "created", "model")}


@pytest.mark.parametrize("variant", STREAM)
@pytest.mark.parametrize("asked", ["asked", "not asked"])
def test_a_stream_that_is_only_different(played: Played, variant: str, asked: str) -> None:
    answer, direct, record = played.of(f"stream {variant} {asked}")
    assert (answer.status, answer.is_done) == (200, True)
    assert "content-encoding" not in answer.headers
    assert b"\r" not in answer.body
    said = [chunk for chunk in direct.chunks if chunk["choices"] or chunk.get("usage")]
    assert [without_names(chunk) for chunk in answer.chunks] == [without_names(chunk) for chunk in said]
    assert {chunk["model"] for chunk in answer.chunks} == {played.tenant.model.name}
    assert len({(chunk["id"], chunk["created"]) for chunk in answer.chunks}) == 1
    assert (record.status, record.usage_source) == ("ok", "reported")
    usage = played.direct[f"stream {variant} asked"].chunks[-1]["usage"]
    assert (record.input_tokens, record.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])


@pytest.mark.parametrize("variant", PLAIN)
def test_a_plain_answer_that_is_only_different(played: Played, variant: str) -> None:
    answer, direct, record = played.of(f"plain {variant}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert "content-encoding" not in answer.headers
    assert without_names(answer.json) == without_names(direct.json)
    assert answer.json["model"] == played.tenant.model.name
    usage = answer.json["usage"]
    assert (record.input_tokens, record.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])


def test_the_upstreams_own_name_of_its_model_is_recorded(played: Played) -> None:
    assert played.of("plain answer_model=other-name")[2].answered_model == "other-name"
    assert played.of("stream answer_model=other-name asked")[2].answered_model == "other-name"


# Usage, as each provider reports it.


@pytest.mark.parametrize("stream", [True, None])
@pytest.mark.parametrize("usage", ["openai", "kimi", "deepseek", "qwen", "vllm", "xai"])
def test_every_providers_usage_is_understood(
    world: World, practice: PracticeProcess, usage: str, stream: bool | None
) -> None:
    text = f"{'long ' * 3000} @practice usage={usage},tokens=9,reasoning=4@"
    tenant = world.tenant(practice.url)
    tenant.stream(text, stream=stream)
    answer = tenant.stream(text, stream=stream, stream_options=ASKS if stream else None)
    assert answer.status == 200
    record = tenant.record(answer)
    assert record.usage_source == "reported"
    assert record.cached_input_tokens > 1024
    assert 0 < record.uncached_input_tokens < record.cached_input_tokens
    assert (record.output_tokens, record.reasoning_tokens) == (13, 0 if usage in ("kimi", "vllm") else 4)
    assert record.usage_flags == (["output_excluded_reasoning"] if usage == "xai" else [])
    if stream:
        assert [chunk for chunk in answer.chunks if chunk.get("usage")]
    tenant.check_books(2)


@pytest.mark.parametrize("options", [ASKS, None])
def test_usage_in_every_chunk_is_counted_once(
    world: World, practice: PracticeProcess, options: dict[str, bool] | None
) -> None:
    tenant = world.tenant(practice.url)
    answer = tenant.stream("@practice usage_every,tokens=12@", stream_options=options)
    assert answer.is_done
    assert any("usage" in chunk for chunk in answer.chunks) is (options is not None)
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
