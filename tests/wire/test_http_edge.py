"""The HTTP side of an answer: headers, prefixes, browsers, and connections that are used again."""

import re

import pytest

from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import RawClient
from tests.wire.world import Tenant, World

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
CHAT = "/v1/chat/completions"


@pytest.fixture
def tenant(world: World, practice: PracticeProcess) -> Tenant:
    return world.tenant(practice.url)


def test_the_headers_of_a_stream(tenant: Tenant) -> None:
    answer = tenant.send(tenant.body(stream=True), headers={"accept-encoding": "gzip, br, zstd"})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert "content-length" not in answer.headers
    assert "server" not in answer.headers
    assert answer.body.startswith(b"data: {")


def test_the_headers_of_a_plain_answer(tenant: Tenant) -> None:
    answer = tenant.send(tenant.body(), headers={"accept-encoding": "gzip"})
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert not {"content-encoding", "server", "set-cookie", "openai-version"} & set(answer.headers)


@pytest.mark.parametrize("stream", [True, None])
def test_every_answer_has_its_call_id(tenant: Tenant, stream: bool | None) -> None:
    answers = [
        tenant.stream(stream=stream),
        tenant.stream("@practice status=500@", stream=stream),
        tenant.ask(model="x"),
    ]
    ids = [answer.call_id for answer in answers]
    assert all(UUID7.fullmatch(call_id) for call_id in ids)
    assert len(set(ids)) == 3
    assert [answer.headers["x-request-id"] for answer in answers] == ids
    assert {str(record.id) for record in tenant.records(3)} == set(ids)


@pytest.mark.parametrize("stream", [True, None])
def test_server_timing_names_the_stages_known_by_then(tenant: Tenant, stream: bool | None) -> None:
    answer = tenant.stream("@practice ttft_ms=60@", stream=stream)
    shown = {
        name: float(duration)
        for name, duration in re.findall(r"([a-z_]+);dur=([0-9.]+)", answer.headers["server-timing"])
    }
    assert {"auth", "permit", "upstream_wait"} <= set(shown)
    record = tenant.record(answer)
    first_token_wait = shown["upstream_wait"] + shown.get("prefill", 0) + shown.get("decode", 0)
    assert 50 < first_token_wait < 1000
    for name in ("auth", "permit", "upstream_wait"):
        assert shown[name] == pytest.approx(record.stages[name], abs=0.02)


@pytest.mark.parametrize(
    "path",
    [
        f"{CHAT}/", f"{CHAT}//", f"/openai{CHAT}", f"/openai{CHAT}/", "/v1/v1/chat/completions",
        "/openai/v1/v1/v1/chat/completions", f"{CHAT}?x=1", "/v1/chat%2Fcompletions",
    ],
)  # fmt: skip
def test_paths_that_clients_get_wrong(tenant: Tenant, path: str) -> None:
    answer = tenant.send(tenant.body(), path=path)
    assert answer.status == 200
    assert tenant.record(answer).endpoint == CHAT


def test_models_are_listed_and_shown(world: World, tenant: Tenant, practice: PracticeProcess) -> None:
    listed = tenant.send(b"", method="GET", path="/v1/models").json
    assert listed["object"] == "list"
    mine = next(model for model in listed["data"] if model["id"] == tenant.model.name)
    assert set(mine) == {"id", "object", "created", "owned_by"}
    assert tenant.send(b"", method="GET", path=f"/v1/models/{tenant.model.name}/").json == mine
    named = world.tenant(practice.url, model={"name": f"vendor/{tenant.model.name}:1 驿"})
    path = f"/v1/models/vendor/{tenant.model.name}:1%20%E9%A9%BF"
    assert named.send(b"", method="GET", path=path).json["id"] == named.model.name


def test_a_key_sees_only_the_models_that_it_may_use(world: World, tenant: Tenant) -> None:
    _, clear = world.key(tenant.organization, allowed_models=[tenant.model.name])
    headers: dict[str, str | None] = {"authorization": f"Bearer {clear}"}
    listed = tenant.send(b"", method="GET", path="/v1/models", headers=headers).json["data"]
    assert [model["id"] for model in listed] == [tenant.model.name]
    other = world.tenant().model.name
    assert tenant.send(b"", method="GET", path=f"/v1/models/{other}").status == 200
    hidden = tenant.send(b"", method="GET", path=f"/v1/models/{other}", headers=headers)
    assert (hidden.status, hidden.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/none"])
def test_models_take_a_key(tenant: Tenant, path: str) -> None:
    answer = tenant.send(b"", method="GET", path=path, headers={"authorization": None})
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


def test_a_head_request_has_headers_and_no_body(tenant: Tenant) -> None:
    with RawClient(tenant.world.relay.port) as client:
        client.request("HEAD", "/v1/models", tenant.auth)
        answer = client.read_answer(is_head=True)
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.headers["content-length"]) > 0
        # The connection is still in step.
        client.request("GET", "/v1/models", tenant.auth)
        assert client.read_answer().json["object"] == "list"


@pytest.mark.parametrize("path", [CHAT, "/openai/v1/models", "/v1/models/x"])
def test_a_browser_may_ask_first(tenant: Tenant, path: str) -> None:
    headers = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
        "authorization": None,
        "content-type": None,
    }
    answer = tenant.send(b"", method="OPTIONS", path=path, headers=headers)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = {name.strip() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert {"authorization", "content-type", "*"} <= allowed
    assert int(answer.headers["access-control-max-age"]) > 0


@pytest.mark.parametrize("text", ["Hello", "@practice status=500@"])
@pytest.mark.parametrize("stream", [True, None])
def test_a_browser_may_read_the_answer(tenant: Tenant, text: str, stream: bool | None) -> None:
    answer = tenant.send(tenant.body(text, stream=stream), headers={"origin": "https://app.example"})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "x-call-id" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers


def test_others_get_no_headers_for_browsers(tenant: Tenant) -> None:
    assert not any(name.startswith("access-control") for name in tenant.ask().headers)


def test_one_connection_carries_many_calls(tenant: Tenant) -> None:
    head = {**tenant.auth, "content-type": "application/json"}
    with RawClient(tenant.world.relay.port) as client:
        for number in range(6):
            text = "@practice status=500@" if number == 3 else "Hello"
            client.request("POST", CHAT, head, tenant.body(text, stream=number % 2 == 0))
            answer = client.read_answer()
            assert answer.status == (502 if number == 3 else 200)
    tenant.check_books(6)


def test_calls_may_be_sent_ahead(tenant: Tenant) -> None:
    head = {**tenant.auth, "content-type": "application/json"}
    with RawClient(tenant.world.relay.port) as client:
        for _ in range(4):
            client.request("POST", CHAT, head, tenant.body(stream=True))
        for _ in range(4):
            assert client.read_answer().is_done
    tenant.check_books(4)


def test_http_1_0_gets_an_answer_that_ends_with_its_connection(tenant: Tenant) -> None:
    body = tenant.body(stream=True)
    with RawClient(tenant.world.relay.port) as client:
        client.send(
            f"POST {CHAT} HTTP/1.0\r\nauthorization: Bearer {tenant.clear}\r\n"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        answer = client.read_answer()
    assert answer.is_done
    tenant.check_books(1)


def test_expect_100_continue_is_answered(tenant: Tenant) -> None:
    body = tenant.body()
    with RawClient(tenant.world.relay.port) as client:
        head = {**tenant.auth, "expect": "100-continue", "content-length": str(len(body))}
        client.request("POST", CHAT, head)
        assert client.read_head().status == 100
        client.send(body)
        assert client.read_answer().status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_key(tenant: Tenant, path: str) -> None:
    answer = tenant.send(b"", method="GET", path=path, headers={"authorization": None})
    assert (answer.status, answer.json["status"]) == (200, "ok")


def test_other_paths_are_the_consoles_and_say_so_without_it(tenant: Tenant) -> None:
    for path in ("/", "/v1/balance", "/v1/apikeys", "/v1/usage", "/api/v1/calls/"):
        assert tenant.send(b"", method="GET", path=path).status == 503
