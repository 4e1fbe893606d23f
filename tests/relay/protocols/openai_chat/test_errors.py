"""Errors as an OpenAI client sees them: every kind has its status, envelope and headers (protocols, 8.3)."""

import json

import pytest

from relay.errors import RULES, CallError, ErrorKind, Refusal, UpstreamFailure
from relay.protocols.openai_chat.errors import error_body, error_event, error_headers, error_status

TABLE = {
    "bad_json": (400, "invalid_request_error", "invalid_json"),
    "bad_field": (400, "invalid_request_error", "invalid_value"),
    "wrong_key": (401, "invalid_request_error", "invalid_api_key"),
    "no_key": (401, "invalid_request_error", "invalid_api_key"),
    "key_revoked": (401, "invalid_request_error", "invalid_api_key"),
    "key_expired": (401, "invalid_request_error", "invalid_api_key"),
    "keys_differ": (401, "invalid_request_error", "invalid_api_key"),
    "model_not_allowed": (403, "permission_error", "model_not_allowed"),
    "unknown_model": (404, "invalid_request_error", "model_not_found"),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "rate_limited": (429, "rate_limit_error", "rate_limit_exceeded"),
    "concurrency": (429, "rate_limit_error", "rate_limit_exceeded"),
    "balance_spent": (429, "insufficient_quota", "insufficient_quota"),
    "budget_spent": (429, "insufficient_quota", "insufficient_quota"),
    "upstream_busy": (503, "service_unavailable_error", "server_is_overloaded"),
    "upstream_credential": (503, "service_unavailable_error", "server_is_overloaded"),
    "upstream_broke": (502, "server_error", "upstream_error"),
    "upstream_cut": (502, "server_error", "upstream_error"),
    "upstream_timeout": (504, "server_error", "upstream_timeout"),
    "counters_away": (503, "service_unavailable_error", "limits_unavailable"),
    "internal": (500, "server_error", None),
}


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_can_be_told(kind: ErrorKind) -> None:
    error = CallError(kind, "Something.", param="x")
    assert 400 <= error_status(error) < 600
    shown = json.loads(error_body(error))["error"]
    assert (shown["message"], shown["param"]) == ("Something.", "x")
    assert set(shown) == {"message", "type", "param", "code"}
    assert error_event(error) == b"data: " + error_body(error) + b"\n\n"
    assert RULES[kind].status in {"client_error", "refused", "upstream_error", "interrupted"}


@pytest.mark.parametrize("name", TABLE)
def test_what_the_table_says(name: str) -> None:
    error = CallError(ErrorKind(name), "x")
    shown = json.loads(error_body(error))["error"]
    assert (error_status(error), shown["type"], shown["code"]) == TABLE[name]


def test_clients_are_told_not_to_repeat_what_cannot_pass() -> None:
    for kind in ErrorKind:
        stops = (b"x-should-retry", b"false") in error_headers(CallError(kind, "x"))
        assert stops is not RULES[kind].may_retry


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, b"1"), (0.2, b"1"), (1, b"1"), (1.01, b"2"), (30, b"30")]
)
def test_waits_are_whole_seconds_and_at_least_one(seconds: float, shown: bytes) -> None:
    error = Refusal(ErrorKind.RATE_LIMITED, "x", retry_after_s=seconds)
    assert error_headers(error) == [(b"retry-after", shown)]


def test_an_upstreams_judgement_has_its_own_status_and_words() -> None:
    error = UpstreamFailure(
        ErrorKind.UPSTREAM_REJECTED,
        "Too long.",
        try_next=False,
        http_status=422,
        shown={"type": "t", "code": "c", "param": "messages"},
    )
    assert error_status(error) == 422
    assert json.loads(error_body(error))["error"] == {
        "message": "Too long.", "type": "t", "code": "c", "param": "messages",
    }  # fmt: skip


def test_other_statuses_of_an_upstream_are_not_passed_on() -> None:
    error = UpstreamFailure(ErrorKind.UPSTREAM_CREDENTIAL, "x", try_next=True, http_status=401)
    assert error_status(error) == 503
