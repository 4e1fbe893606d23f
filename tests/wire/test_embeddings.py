"""Embeddings through the relay: vectors as they came, input paid and nothing else."""

import base64
import json
import struct
from functools import partial

import pytest

from tests.fakes.http_server import Peer, answering, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.wire.world import Tenant, World, at_once, eventually

PATH = "/v1/embeddings"
INPUT = 2_000  # nano-units a token
PRICE = {"currency": "USD", "input": "2.00", "output": "1000"}
VECTORS = {"kind": "embedding", "context_tokens": 8192}


def tenant_of(world: World, *urls: str, **fields: object) -> Tenant:
    usual = {"upstream_model": "practice-embedding", "model": VECTORS, "price": PRICE}
    return world.tenant(*urls, **{**usual, **fields})  # type: ignore[arg-type]


def embed(tenant: Tenant, value: object = "Once upon a time", **fields: object) -> Answer:
    return tenant.call(PATH, input=value, **fields)


def json_of(body: object, status: str = "200 OK") -> bytes:
    return http_answer(
        json.dumps(body).encode(), status=status, headers=b"content-type: application/json\r\n"
    )


def test_it_works(world: World, practice: PracticeProcess) -> None:
    tenant = tenant_of(world, practice.url)
    answer = embed(tenant, ["one", "two", "one"])
    assert (answer.status, answer.json["object"], answer.json["model"]) == (200, "list", tenant.model.name)
    first, second, third = (item["embedding"] for item in answer.json["data"])
    assert first == third != second
    tokens = answer.json["usage"]["prompt_tokens"]
    record = tenant.record(answer)
    assert (record.status, record.endpoint, record.protocol, record.stream) == ("ok", PATH, "openai", False)
    assert (record.usage_source, record.input_tokens, record.output_tokens) == ("reported", tokens, 0)
    assert (record.uncached_input_tokens, record.cached_input_tokens) == (tokens, 0)
    assert (record.amount_nano, record.answered_model) == (INPUT * tokens, "practice-embedding")
    tenant.check_books(1)


def test_vectors_come_in_the_form_that_was_asked_for(world: World, practice: PracticeProcess) -> None:
    tenant = tenant_of(world, practice.url)
    numbers = embed(tenant, dimensions=8).json["data"][0]["embedding"]
    packed = embed(tenant, dimensions=8, encoding_format="base64").json["data"][0]["embedding"]
    assert list(struct.unpack("<8f", base64.b64decode(packed))) == numbers


@pytest.mark.parametrize(
    ("value", "tokens"), [([1, 2, 3], 3), ([[1, 2], [3], [4, 5]], 5), ("a", 1), (["a"] * 2048, 2048)]
)
def test_every_kind_of_input_is_counted(
    world: World, practice: PracticeProcess, value: object, tokens: int
) -> None:
    tenant = tenant_of(world, practice.url)
    answer = embed(tenant, value, dimensions=2)
    assert len(answer.json["data"]) == (len(value) if isinstance(value, list) and value[0] != 1 else 1)
    (record,) = tenant.check_books(1)
    assert (record.input_tokens, record.amount_nano) == (tokens, INPUT * tokens)


async def silent(peer: Peer) -> None:
    """Reads a request and says nothing until its client leaves."""
    await peer.request()
    await peer.gone()


def test_input_is_held_and_no_output(world: World) -> None:
    with in_thread(silent) as server:
        tenant = tenant_of(world, server.url)
        value = "word " * 100
        body_bytes = len(json.dumps({"model": tenant.model.name, "input": value}))
        with tenant.begin(PATH, input=value):
            eventually(lambda: tenant.use()[2] == 1)
            assert tenant.use()[1] == INPUT * -(-body_bytes // 2)
    (record,) = tenant.check_books(1)
    assert (record.status, record.amount_nano) == ("client_gone", 0)


def test_each_input_of_a_list_may_fill_the_window(world: World) -> None:
    with in_thread(silent) as server:
        tenant = tenant_of(world, server.url, model={**VECTORS, "context_tokens": 50})
        for inputs in (1, 3):
            with tenant.begin(PATH, input=["word " * 100] * inputs):
                eventually(lambda: tenant.use()[2] == 1)
                assert tenant.use()[1] == INPUT * 50 * inputs
            eventually(lambda: tenant.use()[2] == 0)


def test_a_balance_that_does_not_cover_the_input_refuses(world: World, practice: PracticeProcess) -> None:
    tenant = tenant_of(world, practice.url, balance="0.0001")
    assert embed(tenant, "a").status == 200
    refused = embed(tenant, "word " * 200)
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")


def test_what_is_sent_on_is_what_came(world: World) -> None:
    said = {"data": [{"index": 0, "embedding": "AACAPwAAAMA="}], "usage": {"total_tokens": 8}, "model": "up"}
    with in_thread(answering(json_of(said))) as server:
        tenant = tenant_of(world, f"{server.url}/v1", upstream_model="up-m")
        fields = {"input": [[1, 2]], "encoding_format": "base64", "user": "u", "dimensions": 2}
        answer = tenant.call(PATH, **fields, task_id="label", stream=True)
        (request,) = server.requests
        assert request.line == "POST /v1/embeddings HTTP/1.1"
        assert json.loads(request.body) == {"model": "up-m", **fields, "stream": True}
        assert answer.json == {**said, "model": tenant.model.name}
    (record,) = tenant.check_books(1)
    assert (record.task_id, record.input_tokens, record.stream) == ("label", 8, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [{"text": "a"}]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "model": "no-such-model"}, "model"),
    ],
)
def test_a_field_at_fault_is_named(
    world: World, practice: PracticeProcess, fields: dict[str, object], param: str
) -> None:
    tenant = tenant_of(world, practice.url)
    answer = tenant.call(PATH, **fields)
    assert answer.status in (400, 404)
    assert (answer.error["type"], answer.error["param"]) == ("invalid_request_error", param)
    assert {record.amount_nano for record in tenant.check_books(1)} == {0}


def test_a_model_that_writes_texts_is_refused_by_name(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    answer = embed(tenant)
    assert (answer.status, answer.error["type"], answer.error["param"]) == (
        400,
        "invalid_request_error",
        "model",
    )
    assert tenant.model.name in answer.error["message"]
    assert "embedding" in answer.error["message"]
    (record,) = tenant.check_books(1)
    assert (record.status, record.error_kind, record.attempts) == ("client_error", "bad_field", [])


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (json_of({"error": {"message": "no"}}, "500 No"), "upstream_broke"),
        (json_of({"error": {"message": "no"}}), "upstream_broke"),
        (json_of({"data": [], "usage": {"total_tokens": 5}}), "upstream_empty"),
        (json_of({"data": [{"embedding": []}], "usage": {"total_tokens": 5}}), "upstream_empty"),
        (json_of({"data": [{"embedding": [1.0]}, {"index": 1}]}), "upstream_empty"),
        (json_of([]), "upstream_garbage"),
        (http_answer(b'{"data":[{"embedding":[1', headers=b"content-type: application/json\r\n"), "upstream_garbage"),
        (http_answer(b"<html>", headers=b"content-type: text/html\r\n"), "upstream_garbage"),
        (http_answer(b'{"data":').replace(b"length: 8", b"length: 99"), "upstream_cut"),
    ],
)  # fmt: skip
def test_another_upstream_is_asked(world: World, practice: PracticeProcess, said: bytes, result: str) -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.send(said)

    with in_thread(once) as server:
        tenant = tenant_of(world, f"{server.url}/v1", practice.url)
        assert embed(tenant).status == 200
        assert len(server.requests) == 1
    (record,) = tenant.check_books(1)
    assert [attempt["result"] for attempt in record.attempts] == [result, "ok"]
    assert record.amount_nano == INPUT * record.input_tokens


def test_an_upstreams_judgement_of_the_request_is_shown(world: World, practice: PracticeProcess) -> None:
    tenant = tenant_of(world, practice.url)
    answer = embed(tenant, dimensions=100_000)
    assert (answer.status, answer.error["param"]) == (400, "dimensions")
    (record,) = tenant.check_books(1)
    assert (record.status, record.amount_nano) == ("client_error", 0)


def test_usage_that_is_missing_is_estimated_within_the_hold(world: World, practice: PracticeProcess) -> None:
    tenant = tenant_of(world, practice.url)
    record = tenant.record(embed(tenant, "@practice usage=none@" + "word " * 100))
    assert (record.usage_source, record.output_tokens) == ("estimated", 0)
    assert 100 < record.input_tokens < 400
    assert record.amount_nano == INPUT * record.input_tokens
    tenant.check_books(1)


@pytest.mark.parametrize("directive", ["pieces=7", "gzip", "slow_body_ms=100", "comments", "framing=close"])
def test_every_framing_gives_the_same(world: World, practice: PracticeProcess, directive: str) -> None:
    tenant = tenant_of(world, practice.url)
    answer = embed(tenant, ["one", f"@practice {directive}@"], dimensions=16)
    plain = embed(tenant, ["one", "two"], dimensions=16)
    assert answer.json["data"][0] == plain.json["data"][0]
    assert len(answer.json["data"][1]["embedding"]) == 16
    tenant.check_books(2)


def test_a_client_that_leaves_stops_the_upstream_and_pays_nothing(
    world: World, practice: PracticeProcess
) -> None:
    tenant = tenant_of(world, practice.url)
    open_before = practice.stats()["open"]
    with tenant.begin(PATH, input="@practice headers_delay_ms=60000@"):
        practice.wait_for(open=open_before + 1)
    practice.wait_for(open=open_before)
    (record,) = tenant.check_books(1)
    assert (record.status, record.http_status, record.amount_nano) == ("client_gone", 499, 0)


def test_a_large_answer_passes_whole(world: World, practice: PracticeProcess) -> None:
    """2,048 vectors of 1,536 numbers: 60 MB of digits would be too many, as base64 they are 17."""
    tenant = tenant_of(world, practice.url)
    answer = embed(tenant, [str(number) for number in range(2048)], encoding_format="base64")
    assert len({item["embedding"] for item in answer.json["data"]}) == 2048
    tenant.check_books(1)


def test_many_at_once_fit_the_books(world: World, practice: PracticeProcess) -> None:
    tenant = tenant_of(world, practice.url)
    calls = {str(n): partial(embed, tenant, [f"Number {n}"] * 3, dimensions=4) for n in range(24)}
    assert {answer.status for answer in at_once(calls).values()} == {200}
    tenant.check_books(24)
