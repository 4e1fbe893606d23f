"""What a failed attempt means, by what the upstream said."""

import json

import pytest

from relay.errors import ErrorKind
from relay.upstreams.classify import (
    LONGEST_WAIT_S,
    failure_of_error,
    failure_of_fault,
    failure_of_status,
    retry_after_s,
)
from relay.upstreams.faults import FaultKind, UpstreamFault

TOO_LONG = ("invalid_request_error", "context_length_exceeded")
NOW = 1_800_000_000.0


def judged(status: int = 400, **error: object) -> tuple[object, object]:
    """The type and the code that the caller sees of the upstream's error; None where the dialect's own stand."""
    failure = failure_of_status(status, json.dumps({"error": error}).encode(), retry_s=None)
    assert failure.kind is ErrorKind.UPSTREAM_REJECTED
    assert not failure.try_next
    assert failure.shown is not None
    return failure.shown.get("type"), failure.shown.get("code")


@pytest.mark.parametrize(
    ("status", "kind", "try_next"),
    [
        (400, ErrorKind.UPSTREAM_REJECTED, False),
        (401, ErrorKind.UPSTREAM_CREDENTIAL, True),
        (402, ErrorKind.UPSTREAM_CREDENTIAL, True),
        (404, ErrorKind.UPSTREAM_BROKE, True),
        (408, ErrorKind.UPSTREAM_TIMEOUT, True),
        (413, ErrorKind.UPSTREAM_REJECTED, False),
        (422, ErrorKind.UPSTREAM_REJECTED, False),
        (429, ErrorKind.UPSTREAM_BUSY, True),
        (500, ErrorKind.UPSTREAM_BROKE, True),
        (302, ErrorKind.UPSTREAM_BROKE, True),
        (529, ErrorKind.UPSTREAM_BUSY, True),
    ],
)
def test_a_status_has_its_meaning(status: int, kind: ErrorKind, try_next: bool) -> None:
    failure = failure_of_status(status, b"no JSON", retry_s=None)
    assert (failure.kind, failure.try_next, failure.http_status) == (kind, try_next, status)


def test_an_account_without_money_is_never_the_callers_fault() -> None:
    body = b'{"error":{"code":"insufficient_quota","message":"pay"}}'
    failure = failure_of_status(429, body, retry_s=3)
    assert (failure.kind, failure.try_next) == (ErrorKind.UPSTREAM_CREDENTIAL, True)
    assert "pay" not in failure.message


def test_a_judgement_of_the_request_keeps_its_own_words() -> None:
    assert judged(type="t", code="c", message="x") == ("t", "c")
    assert judged(message="x") == (None, None)
    failure = failure_of_status(422, b'{"error":{"message":"No.","param":"n"}}', retry_s=None)
    assert (failure.message, failure.shown) == ("No.", {"param": "n"})


def test_a_status_in_place_of_a_code_is_not_shown() -> None:
    """vLLM, SGLang and llama.cpp repeat the status as a number."""
    assert judged(type="BadRequestError", code=400, message="x") == ("BadRequestError", None)


@pytest.mark.parametrize(
    "error",
    [
        {"code": 400, "type": "exceed_context_size_error", "message": "request (9019 tokens) exceeds it"},
        {
            "code": 400,
            "type": "BadRequestError",
            "message": "This model's maximum context length is 9 tokens.",
        },
        {
            "code": 400,
            "message": "The input (9 tokens) is longer than the model's context length (8 tokens).",
        },
        {"type": "invalid_request_error", "message": "Prompt is too long: 9 tokens > 8 maximum"},
        {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "x"},
    ],
)
def test_a_prompt_above_the_context_has_one_code(error: dict[str, object]) -> None:
    assert judged(**error) == TOO_LONG


@pytest.mark.parametrize("body", [b"", b"[1]", b'"x"', b'{"error":7}', b'{"error":{"message":7}}', b"\xff"])
def test_a_judgement_without_words_has_ours(body: bytes) -> None:
    failure = failure_of_status(400, body, retry_s=None)
    assert failure.message == "The upstream refused the request (status 400)."


@pytest.mark.parametrize("body", [b'{"error":"No."}', b'{"message":"No."}'])
def test_words_are_found_in_other_places(body: bytes) -> None:
    assert failure_of_status(400, body, retry_s=None).message == "No."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "1302"}, ErrorKind.UPSTREAM_BUSY),
        ({"code": 429}, ErrorKind.UPSTREAM_BUSY),
        ({"type": "insufficient_quota"}, ErrorKind.UPSTREAM_CREDENTIAL),
        ({"code": "garbage"}, ErrorKind.UPSTREAM_GARBAGE),
        ({"code": "x"}, ErrorKind.UPSTREAM_BROKE),
        ({}, ErrorKind.UPSTREAM_BROKE),
    ],
)
def test_an_error_under_status_200_has_its_meaning(error: dict[str, object], kind: ErrorKind) -> None:
    failure = failure_of_error(error)
    assert (failure.kind, failure.try_next) == (kind, True)


@pytest.mark.parametrize("fault", FaultKind)
def test_every_fault_of_a_connection_lets_another_upstream_be_tried(fault: FaultKind) -> None:
    failure = failure_of_fault(UpstreamFault(fault, "secret.example"))
    assert failure.try_next
    assert "secret.example" not in failure.message
    assert failure.kind.value.startswith("upstream_")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (b"7", 7.0),
        (b" 0.5 ", 0.5),
        (b"-3", 0.0),
        (b"Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        (b"Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        (b"soon", None),
        (b"inf", None),
        (b"nan", None),
        (b"1e400", None),
        (b"1e300", LONGEST_WAIT_S),
        (b"Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT_S),
        (b"", None),
    ],
)
def test_a_wait_is_read(value: bytes | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds
