"""Pure. The closed family of reasons why a call does not succeed.

    CallError
    ├── Refusal            decided by us before any upstream was asked; nobody is charged
    └── UpstreamFailure    every candidate failed; `may_retry` says whether another candidate could have helped

Each `ErrorKind` answers three questions, once, in `RULES`: which status does the record get, can the client help itself
by retrying the same call, and (per dialect, in `protocols/<dialect>/errors.py`) what does the client see. Messages are
sentences for the caller; they never name an upstream, a host, a credential or another's id.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RULES", "CallError", "ErrorKind", "Refusal", "Rule", "UpstreamFailure"]


class ErrorKind(StrEnum):
    BAD_JSON = "bad_json"
    BAD_FIELD = "bad_field"
    BAD_CONTENT_TYPE = "bad_content_type"
    TOO_LARGE = "too_large"
    SLOW_BODY = "slow_body"
    NO_KEY = "no_key"
    KEYS_DIFFER = "keys_differ"
    WRONG_KEY = "wrong_key"
    KEY_REVOKED = "key_revoked"
    KEY_EXPIRED = "key_expired"
    KEY_SCOPE = "key_scope"
    ORGANIZATION_OFF = "organization_off"
    UNKNOWN_PATH = "unknown_path"
    UNKNOWN_METHOD = "unknown_method"
    UNKNOWN_MODEL = "unknown_model"
    MODEL_NOT_ALLOWED = "model_not_allowed"
    MODEL_NOT_PRICED = "model_not_priced"
    BALANCE_SPENT = "balance_spent"
    BUDGET_SPENT = "budget_spent"
    RATE_LIMITED = "rate_limited"
    CONCURRENCY = "concurrency"
    COUNTERS_AWAY = "counters_away"
    JOURNAL_FULL = "journal_full"
    NOT_READY = "not_ready"
    LOOP = "loop"
    NO_UPSTREAM = "no_upstream"
    UPSTREAM_REJECTED = "upstream_rejected"
    UPSTREAM_BUSY = "upstream_busy"
    UPSTREAM_CREDENTIAL = "upstream_credential"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_BROKE = "upstream_broke"
    UPSTREAM_CUT = "upstream_cut"
    UPSTREAM_EMPTY = "upstream_empty"
    UPSTREAM_GARBAGE = "upstream_garbage"
    UPSTREAM_LOOP = "upstream_loop"
    SHUTDOWN = "shutdown"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Rule:
    """`status` of the record; `may_retry`: the same call may pass later without anyone changing anything."""

    status: str
    may_retry: bool


_CLIENT = Rule("client_error", may_retry=False)
_REFUSED = Rule("refused", may_retry=False)
_LATER = Rule("refused", may_retry=True)
_UPSTREAM = Rule("upstream_error", may_retry=True)

RULES: dict[ErrorKind, Rule] = {
    ErrorKind.BAD_JSON: _CLIENT,
    ErrorKind.BAD_FIELD: _CLIENT,
    ErrorKind.BAD_CONTENT_TYPE: _CLIENT,
    ErrorKind.TOO_LARGE: _CLIENT,
    ErrorKind.SLOW_BODY: _CLIENT,
    ErrorKind.NO_KEY: _REFUSED,
    ErrorKind.KEYS_DIFFER: _REFUSED,
    ErrorKind.WRONG_KEY: _REFUSED,
    ErrorKind.KEY_REVOKED: _REFUSED,
    ErrorKind.KEY_EXPIRED: _REFUSED,
    ErrorKind.KEY_SCOPE: _REFUSED,
    ErrorKind.ORGANIZATION_OFF: _REFUSED,
    ErrorKind.UNKNOWN_PATH: _CLIENT,
    ErrorKind.UNKNOWN_METHOD: _CLIENT,
    ErrorKind.UNKNOWN_MODEL: _CLIENT,
    ErrorKind.MODEL_NOT_ALLOWED: _REFUSED,
    ErrorKind.MODEL_NOT_PRICED: _REFUSED,
    ErrorKind.BALANCE_SPENT: _REFUSED,
    ErrorKind.BUDGET_SPENT: _REFUSED,
    ErrorKind.RATE_LIMITED: _LATER,
    ErrorKind.CONCURRENCY: _LATER,
    ErrorKind.COUNTERS_AWAY: _LATER,
    ErrorKind.JOURNAL_FULL: _LATER,
    ErrorKind.NOT_READY: _LATER,
    ErrorKind.LOOP: _REFUSED,
    ErrorKind.NO_UPSTREAM: _UPSTREAM,
    ErrorKind.UPSTREAM_REJECTED: Rule("client_error", may_retry=False),
    ErrorKind.UPSTREAM_BUSY: _UPSTREAM,
    ErrorKind.UPSTREAM_CREDENTIAL: _UPSTREAM,
    ErrorKind.UPSTREAM_UNREACHABLE: _UPSTREAM,
    ErrorKind.UPSTREAM_TIMEOUT: _UPSTREAM,
    ErrorKind.UPSTREAM_BROKE: _UPSTREAM,
    ErrorKind.UPSTREAM_CUT: _UPSTREAM,
    ErrorKind.UPSTREAM_EMPTY: _UPSTREAM,
    ErrorKind.UPSTREAM_GARBAGE: _UPSTREAM,
    ErrorKind.UPSTREAM_LOOP: Rule("upstream_error", may_retry=False),
    ErrorKind.SHUTDOWN: Rule("interrupted", may_retry=True),
    ErrorKind.INTERNAL: Rule("upstream_error", may_retry=True),
}


class CallError(Exception):
    """A call that cannot go on. `param` names the field at fault; `retry_after_s` is whole seconds, at least 1."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.retry_after_s = None if retry_after_s is None else max(1, int(-(-retry_after_s // 1)))


class Refusal(CallError):
    """Refused by us; no upstream was asked."""


class UpstreamFailure(CallError):
    """An attempt failed at or behind the upstream.

    `try_next`: another candidate may be tried. `http_status` is what the upstream answered, if it answered at all.
    `shown` holds the upstream's own error fields where they concern the caller's request (`UPSTREAM_REJECTED` only).
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        try_next: bool,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        param: str | None = None,
        shown: dict[str, str | None] | None = None,
    ) -> None:
        super().__init__(kind, message, param=param, retry_after_s=retry_after_s)
        self.try_next = try_next
        self.http_status = http_status
        self.shown = shown
