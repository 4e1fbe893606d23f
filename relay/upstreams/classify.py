"""Pure. What a failed attempt means: may another upstream be tried, and what does the caller see.

Statuses and codes follow protocols.md 8.4. A failure of our account (401, 402, 403, arrears) is never the caller's,
so it is never shown as his; an upstream's judgement of the request itself (400, 413, 422) is, in its own words but
without the names behind it.
"""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import orjson

from relay.errors import ErrorKind, UpstreamFailure
from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["failure_of_error", "failure_of_fault", "failure_of_status", "retry_after_s"]

_TIMEOUTS = frozenset(
    {
        FaultKind.CONNECT_TIMEOUT,
        FaultKind.HEADERS_TIMEOUT,
        FaultKind.FIRST_TOKEN_TIMEOUT,
        FaultKind.IDLE_TIMEOUT,
        FaultKind.TOTAL_TIMEOUT,
    }
)
_GARBAGE = frozenset({FaultKind.MALFORMED, FaultKind.TOO_LARGE})
_NO_MONEY = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "billing_hard_limit_reached",
        "exceeded_current_quota_error",
        "Arrearage",
        "1113",
        "AccountOverdueError",
        "1004",
        "1008",
    }
)
_BUSY_CODES = frozenset(
    {
        "rate_limit_exceeded",
        "rate_limit_error",
        "engine_overloaded_error",
        "rate_limit_reached_error",
        "server_is_overloaded",
        "slow_down",
        "1302",
        "1303",
        "1305",
        "1002",
    }
)
# A prompt above the model's context. Clients that then shorten it know OpenAI's code only; engines name it otherwise or
# say it in words alone: llama.cpp (its type), OpenAI and vLLM, SGLang and Together, Anthropic (read December 2026).
_TOO_LONG = "context_length_exceeded"
_TOO_LONG_TYPE = "exceed_context_size_error"
_TOO_LONG_WORDS = (
    "maximum context length",
    "longer than the model's context length",
    "prompt is too long",
)
# What relays (RFC 5842, 7.2) answer to a call that has come back to them.
_LOOP_STATUS = 508
_TIMEOUT_STATUSES = frozenset({408, 504, 522, 524})
_BUSY_STATUSES = frozenset({429, 503, 529})
_SHOWN_CHARS = 1000
# Chosen: longer than any quota's window.
LONGEST_WAIT_S = 31 * 86_400.0

BUSY = "All upstreams for this model are busy. Try again soon."
BROKE = "The upstream failed to answer this call."
LOOP = "An upstream of this model leads back to this relay."
SLOW = "The upstream took too long to answer."


def retry_after_s(value: bytes | None, now: float) -> float | None:
    """Seconds until the upstream asks to be tried again, or None if it does not say. `now` is seconds since the epoch.

    Accepts delta-seconds and HTTP dates (RFC 9110, 10.2.3). A date in the past gives 0.0, more than a month is a month;
    an unreadable value counts as not said.
    """
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    try:
        wait_s = float(text)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    if not math.isfinite(wait_s):  # "inf" and "nan" are numbers to Python
        return None
    return min(max(0.0, wait_s), LONGEST_WAIT_S)


def failure_of_status(status: int, body: bytes, *, retry_s: float | None) -> UpstreamFailure:
    """The failure behind an answer that is not 200."""
    error = _error_in(body)
    codes = {str(error.get("code") or ""), str(error.get("type") or "")}
    if status in (401, 402, 403) or codes & _NO_MONEY:
        return UpstreamFailure(ErrorKind.UPSTREAM_CREDENTIAL, BUSY, try_next=True, http_status=status)
    if status in _BUSY_STATUSES:
        return UpstreamFailure(
            ErrorKind.UPSTREAM_BUSY, BUSY, try_next=True, http_status=status, retry_after_s=retry_s
        )
    if status in _TIMEOUT_STATUSES:
        return UpstreamFailure(ErrorKind.UPSTREAM_TIMEOUT, SLOW, try_next=True, http_status=status)
    if status == _LOOP_STATUS:
        return UpstreamFailure(ErrorKind.UPSTREAM_LOOP, LOOP, try_next=True, http_status=status)
    if status == 404 or not 400 <= status < 500:
        return UpstreamFailure(ErrorKind.UPSTREAM_BROKE, BROKE, try_next=True, http_status=status)
    return UpstreamFailure(
        ErrorKind.UPSTREAM_REJECTED,
        _message(error) or f"The upstream refused the request (status {status}).",
        try_next=False,
        http_status=status,
        shown=_shown(error),
    )


def failure_of_error(error: Mapping[str, object]) -> UpstreamFailure:
    """The failure behind an error object that came under status 200, plain or as an event of the stream."""
    codes = {str(error.get("code") or ""), str(error.get("type") or "")}
    if "garbage" in codes:
        return UpstreamFailure(ErrorKind.UPSTREAM_GARBAGE, BROKE, try_next=True, http_status=200)
    if codes & _NO_MONEY:
        return UpstreamFailure(ErrorKind.UPSTREAM_CREDENTIAL, BUSY, try_next=True, http_status=200)
    if codes & _BUSY_CODES or error.get("code") in (429, 503, 529):
        return UpstreamFailure(ErrorKind.UPSTREAM_BUSY, BUSY, try_next=True, http_status=200)
    return UpstreamFailure(ErrorKind.UPSTREAM_BROKE, BROKE, try_next=True, http_status=200)


def failure_of_fault(fault: UpstreamFault) -> UpstreamFailure:
    """The failure behind a connection that could not be made or did not hold."""
    if fault.kind in _TIMEOUTS:
        return UpstreamFailure(ErrorKind.UPSTREAM_TIMEOUT, SLOW, try_next=True)
    if fault.kind in _GARBAGE:
        return UpstreamFailure(ErrorKind.UPSTREAM_GARBAGE, BROKE, try_next=True)
    if fault.kind is FaultKind.CUT:
        return UpstreamFailure(ErrorKind.UPSTREAM_CUT, "The upstream broke off its answer.", try_next=True)
    return UpstreamFailure(ErrorKind.UPSTREAM_UNREACHABLE, "The upstream cannot be reached.", try_next=True)


def _error_in(body: bytes) -> Mapping[str, object]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error}
    return answer if isinstance(answer, dict) and isinstance(answer.get("message"), str) else {}


def _message(error: Mapping[str, object]) -> str:
    message = error.get("message")
    return message[:_SHOWN_CHARS] if isinstance(message, str) else ""


def _shown(error: Mapping[str, object]) -> dict[str, str | None]:
    """The upstream's own fields as OpenAI would fill them. A number as the code repeats the status and is left out."""
    shown: dict[str, str | None] = {}
    for name in ("type", "code", "param"):
        value = error.get(name)
        if isinstance(value, str):
            shown[name] = value[:100]
    message = _message(error).lower()
    if shown.get("type") == _TOO_LONG_TYPE or any(words in message for words in _TOO_LONG_WORDS):
        shown.update(type="invalid_request_error", code=_TOO_LONG)
    return shown
