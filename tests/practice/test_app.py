"""From a request to a script: addresses, keys, the cache, errors."""

import json

import pytest

from practice.app import Provider, Reply, Request
from practice.models import MODELS
from practice.script import Act, Step

LONG = "word " * 2000  # 2,500 tokens


def make_request(
    text: str = "Hello", key: str = "sk-a", model: str = "practice-chat", **fields: object
) -> Request:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    return Request(
        "POST", "/v1/chat/completions", {"authorization": f"Bearer {key}"}, json.dumps(body).encode()
    )


def run(provider: Provider, request: Request, now_s: float = 0.0) -> list[Step]:
    """Plays a script without waiting; the first token does what it does on a socket."""
    reply = provider.respond(request, now_s, 1_800_000_000)
    return run_reply(reply, now_s)


def run_reply(reply: Reply, now_s: float = 0.0) -> list[Step]:
    steps = []
    for step in reply.steps:
        if step.act is Act.FIRST and reply.on_first is not None:
            reply.on_first(now_s)
        steps.append(step)
    return steps


def read(steps: list[Step]) -> tuple[int, str, dict[str, object]]:
    """Status, head and JSON of a whole answer."""
    head, _, body = b"".join(step.data for step in steps).partition(b"\r\n\r\n")
    return int(head[9:12]), head.decode(), json.loads(body)


def ask(provider: Provider, *args: object, now_s: float = 0.0, **fields: object) -> dict[str, object]:
    return read(run(provider, make_request(*args, **fields), now_s))[2]


def cached(answer: dict[str, object]) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def wait_s(steps: list[Step]) -> float:
    """Seconds to the first token."""
    total = 0.0
    for step in steps:
        total += step.delay_s
        if step.act is Act.FIRST:
            break
    return round(total, 6)


def test_a_question_is_answered() -> None:
    status, head, body = read(run(Provider(), make_request()))
    assert status == 200
    assert "content-type: application/json\r\n" in head
    assert "x-request-id: req_practice" in head
    assert body["created"] == 1_800_000_000
    assert "Practice text" in body["choices"][0]["message"]["content"]


def test_answers_have_ids_of_their_own() -> None:
    provider = Provider()
    assert ask(provider)["id"] != ask(provider)["id"]


def test_a_key_has_a_cache_and_shares_it_with_nobody() -> None:
    provider = Provider()
    assert cached(ask(provider, LONG, key="a")) == 0
    assert cached(ask(provider, LONG, key="a")) == 2432
    assert cached(ask(provider, LONG, key="b")) == 0
    assert cached(ask(provider, LONG, key="a", model="practice-fast")) == 0


def test_the_cache_lives_as_long_as_the_model_says() -> None:
    provider = Provider()
    for model, lifetime_s in (("practice-chat", 300), ("practice-pro", 1800)):
        ask(provider, LONG, model=model)
        assert cached(ask(provider, LONG, model=model, now_s=lifetime_s - 1)) == 2432
        assert cached(ask(provider, LONG, model=model, now_s=2 * lifetime_s)) == 0


def test_writes_are_counted_by_the_model_that_charges_them() -> None:
    provider = Provider()
    first = ask(provider, LONG, model="practice-pro")["usage"]["prompt_tokens_details"]
    assert (first["cached_tokens"], first["cache_write_tokens"]) == (0, 2432)
    again = ask(provider, LONG, model="practice-pro")["usage"]["prompt_tokens_details"]
    assert (again["cached_tokens"], again["cache_write_tokens"]) == (2432, 0)
    assert "cache_write_tokens" not in ask(provider, LONG)["usage"]["prompt_tokens_details"]


def test_a_prompt_whose_first_token_never_came_is_not_cached() -> None:
    provider = Provider()
    provider.respond(make_request(LONG, stream=True), 0.0, 0)
    assert cached(ask(provider, LONG)) == 0
    run(provider, make_request(LONG + "@practice status=500@"))
    run(provider, make_request(LONG + "@practice cut_after=0@", key="c", stream=True))
    assert cached(ask(provider, LONG, key="c")) == 0


def test_the_first_token_waits_for_what_is_not_cached() -> None:
    provider = Provider()
    tokens = 2504  # 2,500 of text and the role's
    assert wait_s(run(provider, make_request(LONG, stream=True))) == pytest.approx(
        0.08 + tokens * 0.00002, abs=1e-4
    )
    warm = tokens - 2432
    assert wait_s(run(provider, make_request(LONG, stream=True))) == pytest.approx(
        0.08 + warm * 0.00002, abs=1e-4
    )
    assert wait_s(run(provider, make_request(LONG, stream=True, model="practice-fast"))) == 0
    assert wait_s(run(provider, make_request(LONG + "@practice ttft_ms=5@", stream=True))) == 0.005


def test_a_plain_answer_takes_as_long_as_its_stream() -> None:
    streamed = run(Provider(), make_request("@practice tokens=11@", stream=True))
    whole = run(Provider(), make_request("@practice tokens=11@"))
    assert sum(step.delay_s for step in whole) == pytest.approx(sum(step.delay_s for step in streamed))


def test_the_models_are_listed_and_found() -> None:
    headers = {"authorization": "Bearer any"}
    for base in ("/v1/models", "/models"):
        body = read(run(Provider(), Request("GET", base, headers)))[2]
        assert [model["id"] for model in body["data"]] == list(MODELS)
        assert {model["owned_by"] for model in body["data"]} == {"practice"}
        status, _, body = read(run(Provider(), Request("GET", f"{base}/practice-pro?x=1", headers)))
        assert (status, body["id"]) == (200, "practice-pro")
        assert read(run(Provider(), Request("GET", f"{base}/gpt-9", headers)))[0] == 404


def test_the_address_may_leave_out_the_version() -> None:
    request = make_request()
    short = Request("POST", "/chat/completions", request.headers, request.body)
    assert read(run(Provider(), short))[0] == 200


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (Request("GET", "/v1/models", {}), 401, "invalid_api_key"),
        (Request("POST", "/v1/chat/completions", {}), 401, "invalid_api_key"),
        (Request("POST", "/v1/chat/completions", {"authorization": "Bearer "}), 401, "invalid_api_key"),
        (Request("POST", "/v1/chat/completions", {"authorization": "Basic eDp5"}), 401, "invalid_api_key"),
        (Request("GET", "/v1/chat/completions", {"authorization": "Bearer a"}), 405, "method_not_allowed"),
        (Request("POST", "/v1/images", {"authorization": "Bearer a"}), 404, "unknown_url"),
        (Request("POST", "/v1/models", {"authorization": "Bearer a"}), 404, "unknown_url"),
        (Request("GET", "/v1/modelsx", {"authorization": "Bearer a"}), 404, "unknown_url"),
        (Request("POST", "/v1/chat/completions", {"authorization": "Bearer a"}, b"{"), 400, None),
        (Request("POST", "/v1/chat/completions", {"authorization": "Bearer a"}, b"[]"), 400, None),
        (Request("POST", "/v1/chat/completions", {"authorization": "Bearer a"}, b"[" * 5000), 400, None),
        (make_request(model="gpt-9"), 404, "model_not_found"),
        (make_request(model="practice-embedding"), 400, "unsupported_model"),
        (make_request("@practice nope@"), 400, "invalid_directive"),
        (make_request("w" * 262_144 * 4), 400, "context_length_exceeded"),
        (make_request(max_tokens=262_144), 400, "context_length_exceeded"),
    ],
)
def test_what_cannot_be_answered_is_an_error(request_: Request, status: int, code: str | None) -> None:
    answered, _, body = read(run(Provider(), request_))
    assert (answered, body["error"]["code"]) == (status, code)
    assert set(body["error"]) == {"message", "type", "param", "code"}


def test_http_1_0_gets_a_stream_that_ends_with_the_connection() -> None:
    request = make_request(stream=True)
    old = Request("POST", request.path, request.headers, request.body, keep_alive=False, http_version="1.0")
    steps = run(Provider(), old)
    assert b"transfer-encoding" not in steps[0].data
    assert steps[-1].act is Act.CLOSE


def test_reset_forgets_the_cache_and_the_counters() -> None:
    provider = Provider()
    provider.counters.requests = 5
    ask(provider, LONG)
    assert read(run(provider, Request("POST", "/practice/reset", {})))[2]["requests"] == 0
    assert cached(ask(provider, LONG)) == 0


def test_health_and_counters_need_no_key() -> None:
    assert read(run(Provider(), Request("GET", "/healthz", {})))[2] == {"ok": True}
    reply = Provider().respond(Request("GET", "/practice/stats", {}), 0.0, 0)
    assert not reply.is_counted
    assert read(run_reply(reply))[2]["requests"] == 0
