"""Text completions through the relay: what the client gets, what is recorded, who pays."""

import json
from functools import partial

import pytest

from tests.fakes.http_server import Peer, answering, chunk, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.wire.world import Tenant, World, at_once, eventually

PATH = "/v1/completions"
# Input and output at the default price, in nano-units a token.
INPUT, OUTPUT = 2_000, 10_000
FREE_INPUT = {"currency": "USD", "input": "0", "output": "10.00"}
FREE_OUTPUT = {"currency": "USD", "input": "2.00", "output": "0"}


def complete(tenant: Tenant, prompt: object = "Once upon a time", **fields: object) -> Answer:
    return tenant.call(PATH, prompt=prompt, **fields)


def stream(tenant: Tenant, prompt: object = "Once upon a time", **fields: object) -> Answer:
    return complete(tenant, prompt, stream=True, **fields)


async def silent(peer: Peer) -> None:
    """Reads a request and says nothing until its client leaves."""
    await peer.request()
    await peer.gone()


def text_of(answer: Answer) -> str:
    return "".join(choice["text"] for chunk_ in answer.chunks for choice in chunk_.get("choices", ()))


def test_a_plain_answer(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    answer = complete(tenant, max_tokens=20)
    assert answer.status == 200
    assert (answer.json["object"], answer.json["model"]) == ("text_completion", tenant.model.name)
    assert answer.json["choices"][0]["text"].startswith("Practice text")
    usage = answer.json["usage"]
    record = tenant.record(answer)
    assert (record.status, record.endpoint, record.protocol, record.stream) == ("ok", PATH, "openai", False)
    assert (record.end_reason, record.usage_source) == ("length", "reported")
    assert (record.input_tokens, record.output_tokens) == (usage["prompt_tokens"], 20)
    assert record.amount_nano == INPUT * usage["prompt_tokens"] + OUTPUT * 20
    tenant.check_books(1)


@pytest.mark.parametrize("asks", [True, False])
def test_a_stream(world: World, practice: PracticeProcess, asks: bool) -> None:
    tenant = world.tenant(practice.url)
    answer = stream(tenant, max_tokens=20, stream_options={"include_usage": True} if asks else None)
    assert (answer.status, answer.is_done) == (200, True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert {chunk_["model"] for chunk_ in answer.chunks} == {tenant.model.name}
    assert {chunk_["object"] for chunk_ in answer.chunks} == {"text_completion"}
    assert text_of(answer) == complete(tenant, max_tokens=20).json["choices"][0]["text"]
    assert (b"usage" in answer.body) is asks
    record = tenant.record(answer)
    assert (record.status, record.stream, record.end_reason) == ("ok", True, "length")
    assert (record.usage_source, record.output_tokens) == ("reported", 20)
    assert record.ttft_ms is not None
    tenant.check_books(2)


def test_a_warm_prompt_is_cheaper(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    cold = tenant.record(complete(tenant, "word " * 2000))
    warm = tenant.record(stream(tenant, "word " * 2000))
    assert (cold.cached_input_tokens, warm.cached_input_tokens) == (0, 2432)
    assert warm.amount_nano == cold.amount_nano - 2432 * (INPUT - 200)


@pytest.mark.parametrize(
    ("fields", "output", "choices"),
    [
        ({"prompt": ["a", "b", "c"], "max_tokens": 5}, 15, 3),
        ({"prompt": [1, 2, 3], "max_tokens": 5}, 5, 1),
        ({"prompt": [[1, 2], [3]], "max_tokens": 5, "n": 2}, 20, 4),
        ({"prompt": "a", "max_tokens": 5, "best_of": 4}, 20, 1),
        ({"prompt": "a", "max_tokens": 0, "echo": True}, 0, 1),
    ],
)
def test_every_answer_that_is_written_is_paid_for(
    world: World,
    practice: PracticeProcess,
    fields: dict[str, object],
    output: int,
    choices: int,
) -> None:
    tenant = world.tenant(practice.url)
    answer = complete(tenant, **fields)
    assert len(answer.json["choices"]) == choices
    record = tenant.record(answer)
    assert (record.output_tokens, record.usage_source) == (output, "reported")
    assert record.amount_nano == INPUT * record.input_tokens + OUTPUT * output
    tenant.check_books(1)


@pytest.mark.parametrize(
    ("fields", "held_output"),
    [
        ({"prompt": "a", "max_tokens": 100}, 100),
        ({"prompt": "a", "max_tokens": 100, "n": 3}, 300),
        ({"prompt": "a", "max_tokens": 100, "n": 2, "best_of": 3}, 300),
        ({"prompt": ["a", "b"], "max_tokens": 100, "n": 3}, 600),
        ({"prompt": [[1, 2], [3, 4]], "max_tokens": 100}, 200),
        ({"prompt": "a"}, 8192),
        ({"prompt": ["a", "b"]}, 2 * 8192),
    ],
)
def test_the_most_that_it_can_cost_is_held(world: World, fields: dict[str, object], held_output: int) -> None:
    """Input costs nothing here, so that the hold is exactly the ceiling of all answers."""
    with in_thread(silent) as server:
        tenant = world.tenant(server.url, price=FREE_INPUT)
        with tenant.begin(PATH, **fields):
            eventually(lambda: tenant.use()[2] == 1)
            assert tenant.use()[1] == OUTPUT * held_output
    tenant.check_books(1)


def test_each_prompt_of_a_list_may_fill_the_window(world: World) -> None:
    """Output costs nothing here, and the window is smaller than the body: the hold is as many windows as prompts."""
    with in_thread(silent) as server:
        tenant = world.tenant(server.url, price=FREE_OUTPUT, model={"context_tokens": 50})
        for prompts in (1, 3):
            with tenant.begin(PATH, prompt=["word " * 100] * prompts):
                eventually(lambda: tenant.use()[2] == 1)
                assert tenant.use()[1] == INPUT * 50 * prompts
            eventually(lambda: tenant.use()[2] == 0)
    tenant.check_books(2)


def test_a_budget_that_does_not_cover_all_answers_refuses(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, balance="0.002", price=FREE_INPUT)
    assert complete(tenant, max_tokens=100, n=2).status == 200
    refused = complete(tenant, max_tokens=100, n=3)
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")


# What goes upstream.


def test_only_the_name_and_what_the_relay_needs_is_changed(world: World) -> None:
    said = {"choices": [{"text": "x", "index": 0, "finish_reason": "stop"}], "model": "up"}
    with in_thread(answering(json_of(said))) as server:
        tenant = world.tenant(f"{server.url}/v1", upstream_model="up-m")
        fields = {
            "prompt": [[1, 2]],
            "suffix": "end",
            "best_of": 2,
            "logit_bias": {"50256": -100},
            "top_p": 1.0,
        }
        assert complete(tenant, **{**fields, "task_id": "label"}).json["model"] == tenant.model.name
        (request,) = server.requests
        assert request.line == "POST /v1/completions HTTP/1.1"
        assert json.loads(request.body) == {"model": "up-m", **fields}
        assert list(json.loads(request.body)) == ["model", *fields]
    (record,) = tenant.check_books(1)
    assert (record.task_id, record.upstream_model, record.answered_model) == ("label", "up-m", "up")


# What goes wrong.


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "best_of": 1000}, "best_of"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
    ],
)
def test_a_field_at_fault_is_named(
    world: World, practice: PracticeProcess, fields: dict[str, object], param: str
) -> None:
    before = practice.stats()["requests"]
    tenant = world.tenant(practice.url)
    answer = tenant.call(PATH, **fields)
    assert (answer.status, answer.error["type"], answer.error["param"]) == (
        400,
        "invalid_request_error",
        param,
    )
    assert practice.stats()["requests"] == before
    (record,) = tenant.check_books(1)
    assert (record.status, record.endpoint, record.error_kind) == ("client_error", PATH, "bad_field")


def test_a_model_that_makes_vectors_is_refused_by_name(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, model={"kind": "embedding"})
    for path, fields in ((PATH, {"prompt": "a"}), ("/v1/chat/completions", {"messages": []})):
        answer = tenant.call(path, **fields)
        assert (answer.status, answer.error["param"]) == (400, "model")
        assert tenant.model.name in answer.error["message"]
        assert path in answer.error["message"]
    assert {record.amount_nano for record in tenant.check_books(2)} == {0}


def test_other_ways_to_ask(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    for path in ("/openai/v1/completions", "/v1/v1/completions", "/v1/completions/"):
        assert complete(tenant).status == tenant.call(path, prompt="a").status == 200
    answer = tenant.send(b"", method="GET", path=PATH)
    assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")


def test_an_error_before_text_costs_nothing(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    for ask in (complete, stream):
        answer = ask(tenant, "@practice status=500@")
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    assert {record.amount_nano for record in tenant.check_books(2)} == {0}


def test_an_error_behind_text_is_charged_for_what_was_delivered(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    answer = stream(tenant, "@practice error_event=5,usage=none@", max_tokens=20)
    assert (answer.status, answer.is_complete, answer.is_done) == (200, True, False)
    assert answer.error["type"] == "server_error"
    record = tenant.record(answer)
    assert (record.status, record.usage_source, record.output_tokens) == ("upstream_error", "estimated", 5)
    assert record.amount_nano == INPUT * record.input_tokens + OUTPUT * 5
    tenant.check_books(1)


@pytest.mark.parametrize(
    "directive", ["cut_after=3", "cut_after=3,cut_half", "end_after=3", "garbage=3", "framing=bad_chunk"]
)
def test_a_stream_that_breaks_ends_with_an_error(
    world: World, practice: PracticeProcess, directive: str
) -> None:
    tenant = world.tenant(practice.url)
    answer = stream(tenant, f"@practice {directive}@", max_tokens=20)
    assert (answer.status, answer.is_done) == (200, False)
    assert set(answer.error) == {"message", "type", "param", "code"}
    (record,) = tenant.check_books(1)
    assert record.status == "upstream_error"


@pytest.mark.parametrize(
    "directive", ["pieces=1", "crlf", "cr", "comments", "pieces=7,crlf,utf8", "done=none", "usage_every"]
)
def test_every_spelling_of_a_stream_gives_the_same(
    world: World, practice: PracticeProcess, directive: str
) -> None:
    tenant = world.tenant(practice.url)
    answer = stream(tenant, f"@practice {directive}@", max_tokens=20)
    whole = complete(tenant, f"@practice {directive}@", max_tokens=20)
    assert (answer.is_done, text_of(answer)) == (True, whole.json["choices"][0]["text"])
    assert b"usage" not in answer.body
    assert [record.output_tokens for record in tenant.check_books(2)] == [20, 20]


def test_usage_that_is_missing_is_estimated(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    streamed = tenant.record(stream(tenant, "@practice usage=none@", max_tokens=20))
    plain = tenant.record(complete(tenant, "@practice usage=none@", max_tokens=20))
    assert (streamed.usage_source, plain.usage_source) == ("estimated", "estimated")
    assert streamed.output_tokens == 20
    assert 10 <= plain.output_tokens <= 20
    for record in (streamed, plain):
        assert record.input_tokens > 0
        assert record.amount_nano == INPUT * record.input_tokens + OUTPUT * record.output_tokens
    tenant.check_books(2)


def test_a_prompt_that_is_said_again_is_no_output_of_an_estimate(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    prompt = "@practice usage=none@" + "word " * 400
    record = tenant.record(complete(tenant, prompt, echo=True, max_tokens=4000))
    assert record.usage_source == "estimated"
    assert record.output_tokens < 200


def test_nothing_to_add_is_an_answer(world: World, practice: PracticeProcess) -> None:
    """Completions of code end so every day; nobody else is asked, and what was read is paid."""
    usage = {"prompt_tokens": 50, "completion_tokens": 0, "total_tokens": 50}
    choice = {"text": "", "index": 0, "logprobs": None, "finish_reason": "stop"}
    chunks = [
        b"data: "
        + json.dumps({"id": "c", "model": "up", "choices": choices, "usage": used}).encode()
        + b"\n\n"
        for choices, used in (([choice], None), ([], usage))
    ]
    streamed = SSE + b"".join(map(chunk, [*chunks, b"data: [DONE]\n\n", b""]))
    for said, ask in (
        (json_of({"model": "up", "choices": [choice], "usage": usage}), complete),
        (streamed, stream),
    ):
        with in_thread(answering(said)) as server:
            tenant = world.tenant(f"{server.url}/v1", practice.url)
            answer = ask(tenant)
            assert (answer.status, len(server.requests)) == (200, 1)
        (record,) = tenant.check_books(1)
        assert (record.status, record.input_tokens, record.output_tokens) == ("ok", 50, 0)


# Another upstream.


SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def json_of(body: object, status: str = "200 OK") -> bytes:
    return http_answer(
        json.dumps(body).encode(), status=status, headers=b"content-type: application/json\r\n"
    )


def test_another_upstream_is_asked_before_the_first_text(world: World, practice: PracticeProcess) -> None:
    failures = {
        "500": json_of({"error": {"message": "no"}}, "500 No"),
        "404": json_of({"error": {"message": "no"}}, "404 No"),
        "page": http_answer(b"<html>", headers=b"content-type: text/html\r\n"),
        "error": json_of({"error": {"message": "no", "code": "1302"}}),
        "no choices": json_of({"choices": []}),
        "an empty text": json_of({"choices": [{"text": "", "finish_reason": "stop"}]}),
        "error event": SSE + chunk(b'data: {"error":{"code":"x"}}\n\n'),
        "no event": SSE + chunk(b""),
        "done": SSE + chunk(b"data: [DONE]\n\n") + chunk(b""),
    }
    for ask, names in (
        (complete, ("500", "404", "page", "error", "no choices", "an empty text")),
        (stream, ("500", "404", "page", "error", "error event", "no event", "done")),
    ):
        for name in names:
            with in_thread(answering(failures[name])) as server:
                tenant = world.tenant(f"{server.url}/v1", practice.url)
                answer = ask(tenant, max_tokens=10)
                assert answer.status == 200, name
                assert len(server.requests) == 1
            (record,) = tenant.check_books(1)
            assert (record.status, record.output_tokens) == ("ok", 10), name
            assert [attempt["result"] == "ok" for attempt in record.attempts] == [False, True]


def test_nobody_else_is_asked_once_there_was_text(world: World, practice: PracticeProcess) -> None:
    word = b'data: {"id":"b","model":"x","choices":[{"index":0,"text":"BAD","finish_reason":null}]}\n\n'
    with in_thread(answering(SSE + chunk(word) + b"zz\r\n")) as server:
        before = practice.stats()["requests"]
        tenant = world.tenant(f"{server.url}/v1", practice.url)
        answer = stream(tenant)
        assert (answer.status, answer.is_done) == (200, False)
        assert answer.chunks[0]["choices"][0]["text"] == "BAD"
        assert practice.stats()["requests"] == before
    (record,) = tenant.check_books(1)
    assert (record.status, record.output_tokens) == ("upstream_error", 1)


# The client leaves.


def test_a_client_that_leaves_stops_the_upstream(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    open_before = practice.stats()["open"]
    with tenant.begin(PATH, prompt="@practice gap_ms=20@", stream=True, max_tokens=500) as client:
        answer = client.read_head()
        for _ in range(4):
            client.read_event()
    practice.wait_for(open=open_before)
    record = tenant.record(answer)
    assert (record.status, record.usage_source) == ("client_gone", "estimated")
    assert 3 <= record.output_tokens < 100
    assert record.amount_nano == INPUT * record.input_tokens + OUTPUT * record.output_tokens
    tenant.check_books(1)


@pytest.mark.parametrize("is_stream", [True, None])
def test_a_client_that_leaves_before_text_pays_nothing(
    world: World, practice: PracticeProcess, is_stream: bool | None
) -> None:
    tenant = world.tenant(practice.url)
    open_before = practice.stats()["open"]
    with tenant.begin(PATH, prompt="@practice ttft_ms=60000@", stream=is_stream):
        practice.wait_for(open=open_before + 1)
        eventually(lambda: tenant.use()[2] == 1)
    practice.wait_for(open=open_before)
    (record,) = tenant.check_books(1)
    assert (record.status, record.http_status, record.amount_nano) == ("client_gone", 499, 0)


def test_many_at_once_fit_the_books(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    calls = {
        str(number): partial(stream if number % 2 else complete, tenant, f"Number {number}", max_tokens=12)
        for number in range(24)
    }
    assert {answer.status for answer in at_once(calls).values()} == {200}
    assert {record.output_tokens for record in tenant.check_books(24)} == {12}
