"""What nobody should send: a clear error in OpenAI's envelope, and nothing in the logs that is a secret or a prompt."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from accounts import scope
from accounts.keys import make_key
from accounts.models import Key
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import PRICE, Tenant, World, eventually

MARKER = "a-prompt-that-no-log-may-hold"


@pytest.fixture
def tenant(world: World, practice: PracticeProcess) -> Tenant:
    return world.tenant(practice.url)


@pytest.fixture(autouse=True)
def quiet_logs(world: World) -> Iterator[None]:
    """After each test the log holds no key, no credential, no prompt, no traceback."""
    mark = len(world.relay.log)
    yield
    said = world.relay.log[mark:]
    assert MARKER not in said
    assert "Traceback" not in said
    for secret in ("sk-yz-", "upstream-secret-"):
        assert secret not in said


def check_error(answer: Answer, status: int, kind: str, code: str | None, param: str | None = None) -> None:
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"error"}
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert (answer.error["type"], answer.error["code"], answer.error["param"]) == (kind, code, param)
    assert 10 < len(answer.error["message"]) < 400
    assert "x-call-id" in answer.headers


def check_refused_key(answer: Answer) -> None:
    check_error(answer, 401, "invalid_request_error", "invalid_api_key")
    assert answer.headers["x-should-retry"] == "false"


# Keys.


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": None},
        {"authorization": ""},
        {"authorization": "Bearer "},
        {"authorization": "Bearer"},
        {"authorization": "Basic dXNlcjpwYXNz"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {make_key()}"},
        {"authorization": "Bearer " + "x" * 2000},
        {"authorization": "Bearer \xff\xfe"},
        {"authorization": None, "x-api-key": "wrong"},
        {"x-api-key": make_key()},
        {"api-key": "another"},
    ],
)
def test_a_key_that_is_none_or_wrong(tenant: Tenant, headers: dict[str, str | None]) -> None:
    check_refused_key(tenant.send(tenant.body(MARKER), headers=headers))


@pytest.mark.parametrize("place", ["authorization", "x-api-key", "x-goog-api-key", "api-key", "query"])
def test_a_key_may_stand_in_five_places(tenant: Tenant, place: str) -> None:
    headers: dict[str, str | None] = {"authorization": None}
    path = "/v1/chat/completions"
    if place == "query":
        path += f"?a=1&key={tenant.clear}&b=2"
    elif place == "authorization":
        headers[place] = f"bearer   {tenant.clear} "
    else:
        headers[place] = tenant.clear
    assert tenant.send(tenant.body(MARKER), path=path, headers=headers).status == 200


def test_the_same_key_twice_is_one_key(tenant: Tenant) -> None:
    path = f"/v1/chat/completions?key={tenant.clear}"
    headers = {"x-api-key": tenant.clear, "api-key": tenant.clear}
    assert tenant.send(tenant.body(MARKER), path=path, headers=headers).status == 200


@pytest.mark.parametrize("other", ["x-api-key", "x-goog-api-key", "api-key", "query"])
def test_two_keys_that_differ_are_refused_even_if_both_are_good(
    world: World, tenant: Tenant, other: str
) -> None:
    _, second = world.key(tenant.organization)
    path = "/v1/chat/completions" + (f"?key={second}" if other == "query" else "")
    headers = {} if other == "query" else {other: second}
    check_refused_key(tenant.send(tenant.body(MARKER), path=path, headers=headers))


def test_a_fixed_key_of_any_form_works(world: World, practice: PracticeProcess) -> None:
    value = "my own/key+with=%26&signs~" + str(time.time_ns())
    tenant = world.tenant(practice.url, key={"value": value})
    assert tenant.ask(MARKER).status == 200


def test_a_revoked_key_is_refused_within_a_second(tenant: Tenant) -> None:
    assert tenant.ask(MARKER).status == 200
    with scope.site("test"):
        Key.objects.filter(pk=tenant.key.pk).update(revoked_at=timezone.now())
    answer = eventually(lambda: found if (found := tenant.ask(MARKER)).status != 200 else None, within_s=1.0)
    check_refused_key(answer)
    assert "revoked" in answer.error["message"]


def test_a_key_that_expires_is_refused_from_that_moment(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, key={"expires_at": timezone.now() + timedelta(seconds=1.5)})
    assert tenant.ask(MARKER).status == 200
    answer = eventually(lambda: found if (found := tenant.ask(MARKER)).status != 200 else None)
    check_refused_key(answer)
    assert "expired" in answer.error["message"]
    assert timezone.now() >= tenant.key.expires_at


def test_a_key_without_the_scope_to_call(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, key={"scopes": ["manage"]})
    check_error(tenant.ask(MARKER), 403, "permission_error", "insufficient_scope")


# Models.


def test_a_model_that_is_unknown(tenant: Tenant) -> None:
    answer = tenant.ask(MARKER, model="no-such-model")
    check_error(answer, 404, "invalid_request_error", "model_not_found", "model")
    assert "no-such-model" in answer.error["message"]


def test_a_model_that_the_key_may_not_use(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(
        practice.url, key={"allowed_models": ["another"]}, model={"aliases": [f"alias-{time.time_ns()}"]}
    )
    for name in (tenant.model.name, tenant.model.aliases[0]):
        check_error(tenant.ask(MARKER, model=name), 403, "permission_error", "model_not_allowed", "model")


def test_a_model_without_a_price(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price=None)
    check_error(tenant.ask(MARKER), 403, "permission_error", "model_not_priced", "model")


def test_a_model_in_another_currency_without_a_rate(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price={**PRICE, "currency": "EUR"})
    answer = tenant.ask(MARKER)
    check_error(answer, 403, "permission_error", "model_not_priced", "model")
    assert "EUR" in answer.error["message"]
    assert "USD" in answer.error["message"]


def test_a_model_that_is_switched_off(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, model={"enabled": False}, is_known=False)
    eventually(lambda: tenant.ask(MARKER).status == 404)


# Bodies.

NO_JSON: dict[str, bytes] = {
    "empty": b"",
    "text": MARKER.encode(),
    "half": b'{"model":"m","messages":[',
    "two": b'{"model":"m","messages":[]}{}',
    "trailing comma": b'{"model":"m","messages":[],}',
    "single quotes": b"{'model':'m'}",
    "NaN": b'{"model":"m","messages":[],"x":NaN}',
    "NUL": b'{"model":"m","messages":["a\x00b"]}',
    "utf-16": '{"model":"m","messages":[]}'.encode("utf-16"),
    "bad utf-8": b'{"model":"m\xff","messages":[]}',
    "lone surrogate": rb'{"model":"m","messages":[{"role":"user","content":"\ud800 and more"}]}',
    "surrogates swapped": rb'{"model":"m","messages":[{"role":"user","content":"\udc00\ud800"}]}',
    "deep arrays": b'{"model":"m","messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep objects": b'{"model":"m","messages":[],"x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
}


@pytest.mark.parametrize("name", NO_JSON)
def test_a_body_that_is_no_json(tenant: Tenant, name: str) -> None:
    answer = tenant.send(NO_JSON[name])
    check_error(answer, 400, "invalid_request_error", "invalid_json")
    record = tenant.record(answer)
    assert (record.status, record.error_kind, record.amount_nano) == ("client_error", "bad_json", 0)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[]", None),
        (b"null", None),
        (b"{}", "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":1,"messages":[]}', "model"),
        (b'{"model":"m","messages":{}}', "messages"),
        (b'{"model":"m","messages":[],"stream":"yes"}', "stream"),
        (b'{"model":"m","messages":[],"max_tokens":-1}', "max_tokens"),
        (b'{"model":"m","messages":[],"max_tokens":1e400}', "max_tokens"),
        (b'{"model":"m","messages":[],"n":0}', "n"),
        (b'{"model":"m","messages":[],"task_id":{}}', "task_id"),
    ],
)
def test_a_field_that_cannot_be(tenant: Tenant, body: bytes, param: str | None) -> None:
    check_error(tenant.send(body), 400, "invalid_request_error", "invalid_value", param)


@pytest.mark.parametrize("second", [b'"model"', rb'"mod\u0065l"'])
def test_a_model_that_stands_twice_reaches_no_upstream(
    tenant: Tenant, practice: PracticeProcess, second: bytes
) -> None:
    before = practice.stats()["requests"]
    name = f'"{tenant.model.name}"'.encode()
    answer = tenant.send(b'{"model":"practice-pro","messages":[],' + second + b":" + name + b"}")
    check_error(answer, 400, "invalid_request_error", "invalid_value", "model")
    assert practice.stats()["requests"] == before
    record = tenant.record(answer)
    assert (record.status, record.attempts) == ("client_error", [])
    tenant.check_books(1)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_a_content_type_that_is_not_json(tenant: Tenant, kind: str) -> None:
    answer = tenant.send(tenant.body(MARKER), headers={"content-type": kind})
    check_error(answer, 415, "invalid_request_error", "unsupported_content_type")


@pytest.mark.parametrize(
    "kind", [None, "application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"]
)
def test_a_content_type_that_is_json_or_not_said(tenant: Tenant, kind: str | None) -> None:
    assert tenant.send(tenant.body(MARKER), headers={"content-type": kind}).status == 200


def test_a_body_that_is_too_large_by_its_own_word(tenant: Tenant) -> None:
    with RawClient(tenant.world.relay.port) as client:
        head = {**tenant.auth, "content-type": "application/json", "content-length": str(40 * 1024 * 1024)}
        client.request("POST", "/v1/chat/completions", head)
        check_error(client.read_answer(), 413, "invalid_request_error", "request_too_large")


def test_a_body_that_is_too_large_is_refused_while_it_is_sent(tenant: Tenant) -> None:
    """The client sends all 40 MiB before it looks at the answer."""
    check_error(tenant.send(b" " * (40 * 1024 * 1024)), 413, "invalid_request_error", "request_too_large")
    assert tenant.ask(MARKER).status == 200


def test_a_chunked_body_that_grows_too_large(tenant: Tenant) -> None:
    with RawClient(tenant.world.relay.port) as client:
        head = {**tenant.auth, "content-type": "application/json", "transfer-encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        client.send(f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
        block = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            for _ in range(40):
                client.send(block)
        except ConnectionError:
            pass  # refused, and closed before all of it was sent
        check_error(client.read_answer(), 413, "invalid_request_error", "request_too_large")


def test_a_large_body_within_the_limit_passes(tenant: Tenant) -> None:
    answer = tenant.send(tenant.body(MARKER)[:-1] + b',"x":"' + b"x" * (20 * 1024 * 1024) + b'"}')
    assert answer.status == 200


def test_a_chunked_body_passes(tenant: Tenant) -> None:
    body = tenant.body(MARKER)
    with RawClient(tenant.world.relay.port) as client:
        head = {**tenant.auth, "content-type": "application/json", "transfer-encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        client.send(f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
        for byte in body:
            client.send(b"1\r\n" + bytes([byte]) + b"\r\n")
        client.send(b"0\r\n\r\n")
        assert client.read_answer().status == 200


# Paths, methods, headers.


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nothing", "/v1/", "/v1/chat", "/v1/chat/completions/x", "/v1/files", "/v1/chat/completions%00",
        "/v1/models%2f..%2fx/y%00", "/v1//chat/completions", "/v1/chat/completions;x", "/v1/" + "x" * 2000,
        "/v1/%ff%fe",
    ],
)  # fmt: skip
def test_an_unknown_path(tenant: Tenant, path: str) -> None:
    check_error(tenant.send(tenant.body(MARKER), path=path), 404, "invalid_request_error", "unknown_url")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_a_method_that_the_path_does_not_take(tenant: Tenant, method: str) -> None:
    answer = tenant.send(b"", method=method)
    check_error(answer, 405, "invalid_request_error", "method_not_allowed")
    check_error(tenant.send(b"{}", path="/v1/models"), 405, "invalid_request_error", "method_not_allowed")


def test_headers_that_are_huge(tenant: Tenant) -> None:
    """Refused, or closed, without the relay keeping them all; the next call is none the worse."""
    rss = Path(f"/proc/{tenant.world.relay.pid}/statm")
    before = int(rss.read_text().split()[1])
    with RawClient(tenant.world.relay.port) as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-large: ")
        try:
            for _ in range(64):
                client.send(b"x" * 1_048_576)
            answer = client.read_answer()
        except ConnectionError:
            pass  # refused, and closed before all of it was sent
        else:
            assert (answer.status, answer.error["code"]) == (431, "headers_too_large")
    assert (int(rss.read_text().split()[1]) - before) * 4096 < 16 * 1024 * 1024
    assert tenant.ask(MARKER).status == 200


def test_headers_a_little_too_large_are_told_so(tenant: Tenant) -> None:
    with RawClient(tenant.world.relay.port) as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + b"x-a: b\r\n" * 10_000)
        answer = client.read_answer()
    assert (answer.status, answer.error["code"]) == (431, "headers_too_large")
    assert answer.headers["connection"] == "close"


def test_headers_of_a_large_but_usual_size_pass(tenant: Tenant) -> None:
    assert tenant.send(tenant.body(MARKER), headers={"cookie": "x" * 30_000}).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_is_closed(tenant: Tenant, raw: bytes) -> None:
    with RawClient(tenant.world.relay.port) as client:
        client.send(raw)
        client.socket.settimeout(3)
        answer = b""
        try:
            while data := client.socket.recv(65_536):
                answer += data
        except ConnectionError:
            pass
        except TimeoutError:
            assert raw.startswith(b"\x16")
    assert not answer or answer.startswith(b"HTTP/1.1 4")
    assert tenant.ask(MARKER).status == 200
