"""What reaches the upstream of the client's request, byte for byte, and under which names."""

import json
from collections.abc import Iterator

import pytest

from tests.fakes.http_server import HttpServer, answering, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.raw_client import Answer
from tests.wire.world import Tenant, World

SAID = http_answer(
    b'{ "id":"a", "model" : "up-model" ,"created":1.50,"choices":[{"index":0,"message":{"content":"h\\u00e9"},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}, "x": 1e2 }',
    headers=b"content-type: application/json\r\n",
)
# Numbers, escapes, white space and order as no serializer writes them.
REST = b'"messages" : [ {"role":"user","content":"h\\u00e9 \xe9\xa9\xbf"} , {"model":"x","task_id":"y"} ],"top_p":1.0e0'


@pytest.fixture
def upstream() -> Iterator[HttpServer]:
    with in_thread(answering(SAID, SAID, SAID)) as server:
        yield server


@pytest.fixture
def tenant(world: World, upstream: HttpServer) -> Tenant:
    name = f"alias-{world.model().pk}"
    return world.tenant(
        f"{upstream.url}/v1/", upstream_model="up-model", model={"aliases": [name, f"{name}-*", f"*/{name}"]}
    )


def test_the_bytes_are_the_clients_but_for_the_model(tenant: Tenant, upstream: HttpServer) -> None:
    body = b'{ "model" : "%b" ,' % tenant.model.name.encode() + REST + b"}"
    answer = tenant.send(body)
    assert answer.status == 200
    assert upstream.requests[0].body == b'{ "model" : "up-model" ,' + REST + b"}"
    assert answer.body == SAID.partition(b"\r\n\r\n")[2].replace(
        b'"up-model"', f'"{tenant.model.name}"'.encode()
    )


def test_the_upstream_sees_its_own_credential_and_nothing_of_the_client(
    tenant: Tenant, upstream: HttpServer
) -> None:
    headers: dict[str, str | None] = {
        "cookie": "session=1",
        "x-forwarded-for": "10.0.0.1",
        "openai-organization": "org-x",
        "x-stainless-os": "Linux",
        "x-task-id": "job",
        "user-agent": "client/1",
        "x-api-key": tenant.clear,
    }
    assert tenant.send(tenant.body(), headers=headers).status == 200
    (request,) = upstream.requests
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert set(request.headers) == {
        "host", "authorization", "content-type", "accept", "accept-encoding", "user-agent", "x-yizhan-hop",
            "content-length",
    }  # fmt: skip
    assert request.headers["authorization"].startswith("Bearer upstream-secret-")
    assert request.headers["user-agent"] == "yizhan"
    assert request.headers["host"] == upstream.url.removeprefix("http://")
    assert tenant.clear.encode() not in request.raw_head + request.body


@pytest.mark.parametrize("form", ["{}", "{}-turbo", "{}-", "moonshot/{}"])
def test_an_alias_leads_to_the_model_and_stays_its_name(
    tenant: Tenant, upstream: HttpServer, form: str
) -> None:
    asked = form.format(tenant.model.aliases[0])
    answer = tenant.ask(model=asked)
    assert answer.json["model"] == asked
    assert json.loads(upstream.requests[0].body)["model"] == "up-model"
    record = tenant.record(answer)
    assert (record.model, record.upstream_model, record.answered_model) == (
        tenant.model.name, "up-model", "up-model",
    )  # fmt: skip


def test_a_name_that_no_alias_fits_is_unknown(tenant: Tenant) -> None:
    assert tenant.ask(model=tenant.model.aliases[0] + "x").status == 404
    assert tenant.ask(model=tenant.model.aliases[0].upper()).status == 404


def test_a_name_that_is_the_same_there_is_left_alone(world: World, upstream: HttpServer) -> None:
    tenant = world.tenant(f"{upstream.url}/v1", upstream_model="same", model={"name": "same"})
    body = b'{"model":"same", ' + REST + b"}"
    assert tenant.send(body).status == 200
    assert upstream.requests[0].body == body


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (..., {"include_usage": True}),
        (None, {"include_usage": True}),
        ({}, {"include_usage": True}),
        ({"include_usage": False}, {"include_usage": True}),
        ({"include_obfuscation": False}, {"include_obfuscation": False, "include_usage": True}),
        ({"include_usage": True, "x": 1}, {"include_usage": True, "x": 1}),
    ],
)
def test_a_stream_asks_for_usage(tenant: Tenant, upstream: HttpServer, given: object, sent: object) -> None:
    fields = {"model": tenant.model.name, "messages": [], "stream": True, "stream_options": given}
    body = json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()
    tenant.send(body)
    assert json.loads(upstream.requests[0].body) == {
        "model": "up-model", "messages": [], "stream": True, "stream_options": sent,
    }  # fmt: skip
    assert upstream.requests[0].headers["accept"] == "text/event-stream"
    assert upstream.requests[0].headers["accept-encoding"] == "identity"


def test_a_plain_call_keeps_its_stream_options(tenant: Tenant, upstream: HttpServer) -> None:
    tenant.ask(stream_options={"include_usage": False})
    assert json.loads(upstream.requests[0].body)["stream_options"] == {"include_usage": False}


# Labels.


def check_label(tenant: Tenant, answer: Answer, upstream: HttpServer, label: str) -> None:
    assert answer.status == 200
    assert tenant.record(answer).task_id == label
    (request,) = upstream.requests
    assert b"task" not in request.raw_head.lower()
    assert "task_id" not in json.loads(request.body)


@pytest.mark.parametrize("label", ["job-7", "任务 7", "x" * 200, 'say "hi"'])
def test_a_task_id_is_recorded_and_not_sent_on(tenant: Tenant, upstream: HttpServer, label: str) -> None:
    check_label(tenant, tenant.ask(task_id=label), upstream, label)


def test_a_task_id_that_is_null_is_none(tenant: Tenant, upstream: HttpServer) -> None:
    body = tenant.body()[:-1] + b',"task_id":null}'
    check_label(tenant, tenant.send(body), upstream, "")


def test_a_task_id_of_any_length_is_cut(tenant: Tenant, upstream: HttpServer) -> None:
    check_label(tenant, tenant.ask(task_id="y" * 5000), upstream, "y" * 200)


def test_a_task_id_with_a_nul_does_not_lose_the_record(tenant: Tenant, upstream: HttpServer) -> None:
    answer = tenant.ask(task_id="a\u0000b")
    assert answer.status == 200
    assert tenant.record(answer).task_id.replace("\ufffd", "") == "ab"
    tenant.check_books(1)


def test_a_header_labels_too(tenant: Tenant, upstream: HttpServer) -> None:
    check_label(tenant, tenant.send(tenant.body(), headers={"x-task-id": "job 8"}), upstream, "job 8")


def test_the_field_wins_over_the_header(tenant: Tenant, upstream: HttpServer) -> None:
    answer = tenant.send(tenant.body(task_id="field"), headers={"x-task-id": "header"})
    check_label(tenant, answer, upstream, "field")


def test_what_else_is_recorded_of_a_request(tenant: Tenant) -> None:
    answer = tenant.send(
        tenant.body(reasoning_effort="high", service_tier="flex"),
        headers={"user-agent": "OpenAI/Python 3.57.0"},
    )
    record = tenant.record(answer)
    assert (record.reasoning_effort, record.service_tier, record.client) == ("high", "flex", "openai-python")
    assert (record.endpoint, record.protocol) == ("/v1/chat/completions", "openai")
    assert (record.key_id, record.organization_id) == (tenant.key.pk, tenant.organization.pk)
    assert record.price_version is not None
    assert str(record.id) == answer.call_id
