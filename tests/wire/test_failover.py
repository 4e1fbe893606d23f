"""Another upstream is asked before the first content, for every kind of failure, and never after it."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from billing.models import UsageRecord
from tests.fakes.http_server import HttpServer, Peer, Request, answering, chunk, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.fakes.relay_process import RelayProcess
from tests.wire.world import Tenant, World, at_once

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = b'data: {"id":"b","model":"x","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}\n\n'
BAD_WORD = (
    b'data: {"id":"b","model":"x","choices":[{"index":0,"delta":{"content":"BAD"},"finish_reason":null}]}\n\n'
)
SHORT = {"first_token_s": 0.8, "idle_s": 0.8}


def stream_of(*events: bytes) -> bytes:
    return SSE + b"".join(map(chunk, events))


def json_of(body: object, status: str = "200 OK", headers: bytes = b"") -> bytes:
    return http_answer(
        json.dumps(body).encode(), status=status, headers=b"content-type: application/json\r\n" + headers
    )


ERROR = {"error": {"message": "no", "type": "server_error", "code": None}}
# What the first upstream does, and what the attempt is recorded as. None: it closes without a word; "wait": it waits.
BEFORE_CONTENT: dict[str, tuple[bytes | None, str, bool]] = {
    "closed at once": (None, "upstream_cut", False),
    "500": (json_of(ERROR, "500 No"), "upstream_broke", False),
    "502 page": (http_answer(b"<html>", status="502 Bad"), "upstream_broke", False),
    "503": (json_of(ERROR, "503 No"), "upstream_busy", False),
    "504": (json_of(ERROR, "504 No"), "upstream_timeout", False),
    "408": (json_of(ERROR, "408 No"), "upstream_timeout", False),
    "429": (json_of(ERROR, "429 No", b"retry-after: 9\r\n"), "upstream_busy", False),
    "529": (json_of(ERROR, "529 No"), "upstream_busy", False),
    "401": (json_of(ERROR, "401 No"), "upstream_credential", False),
    "402": (json_of(ERROR, "402 No"), "upstream_credential", False),
    "403": (json_of(ERROR, "403 No"), "upstream_credential", False),
    "404": (json_of(ERROR, "404 No"), "upstream_broke", False),
    "200 page": (http_answer(b"<html>", headers=b"content-type: text/html\r\n"), "upstream_garbage", False),
    "200 error object": (json_of(ERROR), "upstream_broke", False),
    "200 empty": (http_answer(b"", headers=b"content-type: application/json\r\n"), "upstream_garbage", False),
    "no http": (b"hello\r\n\r\n", "upstream_garbage", False),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-", "upstream_cut", False),
    "silence": (b"", "upstream_timeout", True),
    "head, then silence": (SSE, "upstream_timeout", True),
}
STREAMS_ONLY: dict[str, tuple[bytes | None, str, bool]] = {
    "role chunk, then cut": (stream_of(ROLE), "upstream_cut", False),
    "role chunk, then end": (stream_of(ROLE, b""), "upstream_cut", False),
    "role chunk, then silence": (stream_of(ROLE), "upstream_timeout", True),
    "error event": (stream_of(b'data: {"error":{"code":"1302"}}\n\n'), "upstream_busy", False),
    "role chunk, then error event": (
        stream_of(ROLE, b'data: {"error":{"code":"x"}}\n\n'),
        "upstream_broke",
        False,
    ),
    "done without content": (stream_of(ROLE, b"data: [DONE]\n\n", b""), "upstream_empty", False),
    "broken json": (stream_of(b"data: {\n\n"), "upstream_garbage", False),
    "comments, then end": (stream_of(b": hi\n\n", b""), "upstream_cut", False),
    "too many opening events": (stream_of(*[ROLE] * 3000), "upstream_garbage", True),
}
PLAIN_ONLY: dict[str, tuple[bytes | None, str, bool]] = {
    "half a body": (
        http_answer(b'{"choices":[').replace(b"length: 12", b"length: 99"),
        "upstream_cut",
        False,
    ),
    "broken json": (http_answer(b'{"choices":['), "upstream_garbage", False),
    "no choices": (json_of({"choices": [], "usage": {"completion_tokens": 5}}), "upstream_empty", False),
    "an empty choice": (json_of({"choices": [{"message": {"content": ""}}]}), "upstream_empty", False),
}


def playing(said: bytes | None, *, waits: bool) -> AbstractContextManager[HttpServer]:
    """An upstream that reads a request, says this and closes; if it `waits`, not before its client does."""

    async def script(peer: Peer) -> None:
        await peer.request()
        if said is not None:
            await peer.send(said)
        if waits:
            await peer.gone()

    return in_thread(script)


@dataclass(frozen=True, slots=True)
class Played:
    answers: dict[str, Answer]
    records: dict[str, UsageRecord]
    requests: dict[str, list[Request]]

    def of(self, name: str) -> tuple[Answer, UsageRecord, list[Request]]:
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise answer
        return answer, self.records[answer.call_id], self.requests[name]


@pytest.fixture(scope="module")
def played(relay: RelayProcess, practice: PracticeProcess, django_db_blocker) -> Iterator[Played]:
    """Two upstreams for each call, the first of which fails; all calls at once."""
    with django_db_blocker.unblock(), ExitStack() as stack:
        world = World(relay)
        calls, tenants, servers = {}, [], {}
        for kind, failures in (
            ("stream", BEFORE_CONTENT | STREAMS_ONLY),
            ("plain", BEFORE_CONTENT | PLAIN_ONLY),
        ):
            for name, (said, _, waits) in failures.items():
                server = servers[f"{kind} {name}"] = stack.enter_context(playing(said, waits=waits))
                limits = SHORT if kind == "stream" else {"total_s": 0.8}
                tenant = world.tenant(f"{server.url}/v1", practice.url, timeouts=limits, is_known=False)
                tenants.append(tenant)
                stream = True if kind == "stream" else None
                calls[f"{kind} {name}"] = partial(tenant.stream, "@practice tokens=30@", stream=stream)
        world.wait_known(tenants[-1])
        answers = at_once(calls)
        records = [record for tenant in tenants for record in tenant.check_books(1)]
        requests = {name: list(server.requests) for name, server in servers.items()}
        yield Played(answers, {str(record.id): record for record in records}, requests)
        world.close()


def check(played: Played, name: str, kind_of_failure: str) -> None:
    answer, record, requests = played.of(name)
    assert answer.status == 200
    assert answer.text.startswith("Practice text")
    assert b"BAD" not in answer.body
    assert [attempt["result"] for attempt in record.attempts] == [kind_of_failure, "ok"]
    assert (record.status, record.output_tokens, record.usage_source) == ("ok", 30, "reported")
    assert record.upstream == record.attempts[1]["upstream"] != record.attempts[0]["upstream"]
    assert record.attempts[0]["ms"] - 0.01 <= record.stages["failover"] <= record.attempts[0]["ms"] + 500
    # A connection that lay ready may have been closed meanwhile: what was written to it is sent once more.
    assert len(requests) == 1 or (len(requests) == 2 and name.endswith("closed at once"))


@pytest.mark.parametrize("name", BEFORE_CONTENT | STREAMS_ONLY)
def test_a_stream_goes_on_to_the_next_upstream(played: Played, name: str) -> None:
    check(played, f"stream {name}", (BEFORE_CONTENT | STREAMS_ONLY)[name][1])
    answer = played.answers[f"stream {name}"]
    assert answer.is_done
    assert len({chunk_["id"] for chunk_ in answer.chunks}) == 1
    roles = [c["delta"].get("role") for chunk_ in answer.chunks for c in chunk_["choices"]]
    assert roles.count("assistant") == 1


@pytest.mark.parametrize("name", BEFORE_CONTENT | PLAIN_ONLY)
def test_a_plain_answer_goes_on_to_the_next_upstream(played: Played, name: str) -> None:
    check(played, f"plain {name}", (BEFORE_CONTENT | PLAIN_ONLY)[name][1])


def test_both_upstreams_get_the_same_request(world: World) -> None:
    with (
        in_thread(answering(json_of(ERROR, "500 No"))) as first,
        in_thread(answering(json_of(ERROR, "500 No"))) as second,
    ):
        tenant = world.tenant(f"{first.url}/v1", f"{second.url}/v1")
        assert tenant.stream("Hello", task_id="t").status == 502
        assert first.requests[0].body == second.requests[0].body
        assert first.requests[0].headers["authorization"] != second.requests[0].headers["authorization"]


@pytest.mark.parametrize(
    ("behind", "kind", "waits"),
    [
        (b"", "upstream_cut", False),
        (chunk(b""), "upstream_cut", False),
        (chunk(b"data: {\n\n"), "upstream_garbage", False),
        (chunk(b'data: {"error":{"code":"x"}}\n\n'), "upstream_broke", False),
        (b"zz\r\n", "upstream_garbage", False),
        (b"", "upstream_timeout", True),
    ],
)
def test_nobody_else_is_asked_once_there_was_content(
    world: World, practice: PracticeProcess, behind: bytes, kind: str, waits: bool
) -> None:
    with playing(stream_of(ROLE, BAD_WORD) + behind, waits=waits) as server:
        before = practice.stats()["requests"]
        tenant = world.tenant(f"{server.url}/v1", practice.url, timeouts=SHORT)
        answer = tenant.stream("Hello")
        assert (answer.status, answer.is_complete, answer.is_done) == (200, True, False)
        assert answer.chunks[1]["choices"][0]["delta"]["content"] == "BAD"
        assert set(answer.error) == {"message", "type", "param", "code"}
        assert practice.stats()["requests"] == before
    (record,) = tenant.check_books(1)
    assert (record.status, record.error_kind) == ("upstream_error", kind)
    assert [attempt["result"] for attempt in record.attempts] == ["ok"]
    assert record.output_tokens == 1


def test_an_upstreams_judgement_ends_the_search(world: World, practice: PracticeProcess) -> None:
    with in_thread(answering(json_of(ERROR, "400 No"))) as server:
        before = practice.stats()["requests"]
        tenant = world.tenant(f"{server.url}/v1", practice.url)
        assert tenant.ask("Hello").status == 400
        assert practice.stats()["requests"] == before
    (record,) = tenant.check_books(1)
    assert [attempt["result"] for attempt in record.attempts] == ["upstream_rejected"]


def test_the_shortest_wait_that_anybody_asked_for_is_passed_on(world: World) -> None:
    busy = [json_of(ERROR, "429 No", f"retry-after: {seconds}\r\n".encode()) for seconds in (30, 4, 11)]
    with (
        in_thread(answering(busy[0])) as a,
        in_thread(answering(busy[1])) as b,
        in_thread(answering(busy[2])) as c,
    ):
        tenant = world.tenant(*(f"{server.url}/v1" for server in (a, b, c)))
        answer = tenant.ask("Hello")
    assert (answer.status, answer.headers["retry-after"]) == (503, "4")
    (record,) = tenant.check_books(1)
    assert [attempt["result"] for attempt in record.attempts] == ["upstream_busy"] * 3


def test_an_upstream_that_nobody_listens_at_is_passed_over(world: World, practice: PracticeProcess) -> None:
    with in_thread(answering()) as server:
        url = server.url
    tenant: Tenant = world.tenant(f"{url}/v1", practice.url)
    assert tenant.ask("Hello").status == 200
    (record,) = tenant.check_books(1)
    assert [attempt["result"] for attempt in record.attempts] == ["upstream_unreachable", "ok"]


def test_a_model_without_an_upstream_is_refused_at_once(world: World) -> None:
    tenant = world.tenant()
    answer = tenant.stream("Hello")
    assert (answer.status, answer.error["code"]) == (503, "server_is_overloaded")
    (record,) = tenant.check_books(1)
    assert (record.error_kind, record.attempts) == ("no_upstream", [])
