"""Pure. Errors as an OpenAI client sees them: the envelope, the status, the headers, and the event inside a stream.

The official SDK raises on any event whose JSON has a truthy top-level `error`; a stream that failed ends with such an
event and without `[DONE]`. `x-should-retry: false` stops the SDKs from repeating a call that cannot heal.
"""

import orjson

from relay.errors import RULES, CallError, ErrorKind, UpstreamFailure

__all__ = ["error_body", "error_event", "error_headers", "error_status"]

_SEEN: dict[ErrorKind, tuple[int, str, str | None]] = {
    ErrorKind.BAD_JSON: (400, "invalid_request_error", "invalid_json"),
    ErrorKind.BAD_FIELD: (400, "invalid_request_error", "invalid_value"),
    ErrorKind.BAD_CONTENT_TYPE: (415, "invalid_request_error", "unsupported_content_type"),
    ErrorKind.TOO_LARGE: (413, "invalid_request_error", "request_too_large"),
    ErrorKind.SLOW_BODY: (408, "invalid_request_error", "request_timeout"),
    ErrorKind.NO_KEY: (401, "invalid_request_error", "invalid_api_key"),
    ErrorKind.KEYS_DIFFER: (401, "invalid_request_error", "invalid_api_key"),
    ErrorKind.WRONG_KEY: (401, "invalid_request_error", "invalid_api_key"),
    ErrorKind.KEY_REVOKED: (401, "invalid_request_error", "invalid_api_key"),
    ErrorKind.KEY_EXPIRED: (401, "invalid_request_error", "invalid_api_key"),
    ErrorKind.KEY_SCOPE: (403, "permission_error", "insufficient_scope"),
    ErrorKind.ORGANIZATION_OFF: (403, "permission_error", "organization_disabled"),
    ErrorKind.UNKNOWN_PATH: (404, "invalid_request_error", "unknown_url"),
    ErrorKind.UNKNOWN_METHOD: (405, "invalid_request_error", "method_not_allowed"),
    ErrorKind.UNKNOWN_MODEL: (404, "invalid_request_error", "model_not_found"),
    ErrorKind.MODEL_NOT_ALLOWED: (403, "permission_error", "model_not_allowed"),
    ErrorKind.MODEL_NOT_PRICED: (403, "permission_error", "model_not_priced"),
    ErrorKind.BALANCE_SPENT: (429, "insufficient_quota", "insufficient_quota"),
    ErrorKind.BUDGET_SPENT: (429, "insufficient_quota", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: (429, "rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.CONCURRENCY: (429, "rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.COUNTERS_AWAY: (503, "service_unavailable_error", "limits_unavailable"),
    ErrorKind.JOURNAL_FULL: (503, "service_unavailable_error", "journal_full"),
    ErrorKind.NOT_READY: (503, "service_unavailable_error", "not_ready"),
    ErrorKind.LOOP: (508, "server_error", "loop_detected"),
    ErrorKind.NO_UPSTREAM: (503, "service_unavailable_error", "server_is_overloaded"),
    ErrorKind.UPSTREAM_REJECTED: (400, "invalid_request_error", None),
    ErrorKind.UPSTREAM_BUSY: (503, "service_unavailable_error", "server_is_overloaded"),
    ErrorKind.UPSTREAM_CREDENTIAL: (503, "service_unavailable_error", "server_is_overloaded"),
    ErrorKind.UPSTREAM_UNREACHABLE: (502, "server_error", "upstream_error"),
    ErrorKind.UPSTREAM_TIMEOUT: (504, "server_error", "upstream_timeout"),
    ErrorKind.UPSTREAM_BROKE: (502, "server_error", "upstream_error"),
    ErrorKind.UPSTREAM_CUT: (502, "server_error", "upstream_error"),
    ErrorKind.UPSTREAM_EMPTY: (502, "server_error", "upstream_error"),
    ErrorKind.UPSTREAM_GARBAGE: (502, "server_error", "upstream_error"),
    ErrorKind.UPSTREAM_LOOP: (508, "server_error", "loop_detected"),
    ErrorKind.SHUTDOWN: (503, "service_unavailable_error", "shutting_down"),
    ErrorKind.INTERNAL: (500, "server_error", None),
}


def error_status(error: CallError) -> int:
    """The HTTP status for the client: the upstream's own only where the upstream judged the client's request."""
    if isinstance(error, UpstreamFailure) and error.kind is ErrorKind.UPSTREAM_REJECTED and error.http_status:
        return error.http_status
    return _SEEN[error.kind][0]


def _envelope(error: CallError) -> dict[str, dict[str, str | None]]:
    _, kind, code = _SEEN[error.kind]
    shown: dict[str, str | None] = {
        "message": error.message,
        "type": kind,
        "param": error.param,
        "code": code,
    }
    if isinstance(error, UpstreamFailure) and error.shown is not None:
        shown.update(error.shown)
    return {"error": shown}


def error_body(error: CallError) -> bytes:
    """The JSON body of an error answer."""
    return orjson.dumps(_envelope(error))


def error_event(error: CallError) -> bytes:
    """The last event of a stream that failed after it had begun."""
    return b"data: " + orjson.dumps(_envelope(error)) + b"\n\n"


def error_headers(error: CallError) -> list[tuple[bytes, bytes]]:
    """`retry-after` where a wait helps, `x-should-retry: false` where repeating cannot."""
    headers = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if not RULES[error.kind].may_retry:
        headers.append((b"x-should-retry", b"false"))
    return headers
