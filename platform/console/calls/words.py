"""Names and sentences for what the call record says in code words: stages, parties, endings, errors.

Unknown words (a newer relay, another release) are shown as they are; nothing here fails on them.
"""

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.models import CallStatus, UsageRecord
from relay.errors import ErrorKind

__all__ = [
    "ATTEMPT_RESULTS",
    "PARTY_NAMES",
    "RECORDED_KINDS",
    "STAGE_HELP",
    "STAGE_NAMES",
    "TOKEN_NAMES",
    "Ending",
    "attempt_result",
    "explain_ending",
]

STAGE_NAMES: dict[str, Promise] = {
    "queue": _("Wait for a place"),
    "auth": _("Check the key"),
    "receive": _("Receive the request"),
    "route": _("Choose an upstream"),
    "permit": _("Check limits, take a hold"),
    "failover": _("Earlier attempts"),
    "connect": _("Connect"),
    "send": _("Send the request on"),
    "upstream_wait": _("Wait for the upstream"),
    "prefill": _("Upstream reads the prompt"),
    "decode": _("Upstream writes the answer"),
    "client_write_wait": _("Wait for the client to read"),
    "relay_overhead": _("Relay's own work"),
    "unexplained": _("Unexplained"),
}
STAGE_HELP: dict[str, Promise] = {
    "queue": _("Until the relay began to work on the call."),
    "auth": _("The key is looked up in memory."),
    "receive": _("Until the whole request body had arrived."),
    "route": _("Price, cache, load and health of each candidate."),
    "permit": _("One round trip to the limit store."),
    "failover": _("Upstreams that failed before the one that answered."),
    "connect": _("Wait for a free connection; look-up, TCP and TLS where a new one was needed."),
    "send": _("The request on its way to the upstream."),
    "upstream_wait": _("From the request's last byte to the answer's head."),
    "prefill": _("From the answer's head to its first token: the prompt is read into the model."),
    "decode": _("From the first token to the last."),
    "client_write_wait": _("The client read more slowly than the answer came."),
    "relay_overhead": _("Parsing, translating and counting, all along the way."),
    "unexplained": _("What no mark accounts for."),
}
PARTY_NAMES: dict[str, Promise] = {
    "client": _("Client"),
    "relay": _("Relay"),
    "network": _("Network"),
    "upstream": _("Upstream"),
    "unexplained": _("Unexplained"),
}
TOKEN_NAMES: dict[str, Promise] = {
    "input": _("Input, not cached"),
    "cached_input": _("Input from the cache"),
    "read_explicit": _("Input from an explicit cache"),
    "cache_write_5m": _("Written to the cache for 5 minutes"),
    "cache_write_30m": _("Written to the cache for 30 minutes"),
    "cache_write_1h": _("Written to the cache for 1 hour"),
    "output": _("Output"),
}

# What an attempt came to (relay.failover): `ok`, an error kind, or that nobody waited for it any longer.
ATTEMPT_RESULTS: dict[str, Promise] = {
    "ok": _("Answered"),
    ErrorKind.UPSTREAM_REJECTED: _("Rejected the request"),
    ErrorKind.UPSTREAM_BUSY: _("At its limit"),
    ErrorKind.UPSTREAM_CREDENTIAL: _("Did not accept the account"),
    ErrorKind.UPSTREAM_UNREACHABLE: _("Not reached"),
    ErrorKind.UPSTREAM_TIMEOUT: _("Not in time"),
    ErrorKind.UPSTREAM_BROKE: _("An error of its own"),
    ErrorKind.UPSTREAM_CUT: _("Broke off"),
    ErrorKind.UPSTREAM_EMPTY: _("An empty answer"),
    ErrorKind.UPSTREAM_GARBAGE: _("An unreadable answer"),
    ErrorKind.UPSTREAM_LOOP: _("Leads back to this relay"),
    "client_gone": _("Given up, the call had ended"),
}
_BEGAN = _("Began to answer")

_BY_STATUS: dict[str, Promise] = {
    CallStatus.OK: _("The answer was delivered whole."),
    CallStatus.CLIENT_ERROR: _("The request could not be carried out as it was sent."),
    CallStatus.UPSTREAM_ERROR: _("No upstream gave a usable answer."),
    CallStatus.REFUSED: _("The relay refused the call before it went to an upstream."),
    CallStatus.CLIENT_GONE: _("The client hung up before the answer was complete."),
    CallStatus.INTERRUPTED: _("The relay process ended before the call did. Nothing was charged."),
}
_BY_KIND: dict[str, Promise] = {
    ErrorKind.BAD_JSON: _("The request body is not valid JSON."),
    ErrorKind.BAD_FIELD: _("A field of the request is missing, of the wrong kind or out of its range."),
    ErrorKind.BAD_CONTENT_TYPE: _("The request's content type is not one that this endpoint reads."),
    ErrorKind.TOO_LARGE: _("The request is larger than the relay takes."),
    ErrorKind.SLOW_BODY: _("The request body did not arrive in time."),
    ErrorKind.NO_KEY: _("No key was sent."),
    ErrorKind.KEYS_DIFFER: _("The request carried two different keys."),
    ErrorKind.WRONG_KEY: _("The key is not known."),
    ErrorKind.KEY_REVOKED: _("The key had been revoked."),
    ErrorKind.KEY_EXPIRED: _("The key had expired."),
    ErrorKind.KEY_SCOPE: _("The key may not be used for calls to models."),
    ErrorKind.ORGANIZATION_OFF: _("The organization was switched off."),
    ErrorKind.UNKNOWN_PATH: _("There is nothing at this path."),
    ErrorKind.UNKNOWN_METHOD: _("The path does not take this method."),
    ErrorKind.UNKNOWN_MODEL: _("No model of this name is on offer."),
    ErrorKind.MODEL_NOT_ALLOWED: _("The key may not call this model."),
    ErrorKind.MODEL_NOT_PRICED: _(
        "The model has no price in the organization's currency, so it cannot be called."
    ),
    ErrorKind.BALANCE_SPENT: _("The balance does not cover the most that the call could cost."),
    ErrorKind.BUDGET_SPENT: _("A budget does not cover the most that the call could cost."),
    ErrorKind.RATE_LIMITED: _("The limit of calls a minute was reached."),
    ErrorKind.CONCURRENCY: _("The limit of calls open at once was reached."),
    ErrorKind.COUNTERS_AWAY: _("The limits could not be checked, so the call was refused."),
    ErrorKind.JOURNAL_FULL: _("The relay could not keep a record of the call, so it was refused."),
    ErrorKind.NOT_READY: _("The relay was not ready to take calls."),
    ErrorKind.LOOP: _("The call had come back to the relay that sent it."),
    ErrorKind.NO_UPSTREAM: _("No upstream that offers the model was available."),
    ErrorKind.UPSTREAM_REJECTED: _("The upstream rejected the request as it was sent."),
    ErrorKind.UPSTREAM_BUSY: _("Every upstream that offers the model was at its limit."),
    ErrorKind.UPSTREAM_CREDENTIAL: _(
        "The upstream did not accept the relay's own account. Its operators are at work."
    ),
    ErrorKind.UPSTREAM_UNREACHABLE: _("The upstream could not be reached."),
    ErrorKind.UPSTREAM_TIMEOUT: _("The upstream did not answer in time."),
    ErrorKind.UPSTREAM_BROKE: _("The upstream answered with an error of its own."),
    ErrorKind.UPSTREAM_CUT: _("The connection to the upstream broke in the middle of the answer."),
    ErrorKind.UPSTREAM_EMPTY: _("The upstream's answer held neither content nor usage."),
    ErrorKind.UPSTREAM_GARBAGE: _("The upstream's answer could not be read."),
    ErrorKind.UPSTREAM_LOOP: _("The upstream leads back to this relay."),
    ErrorKind.SHUTDOWN: _("The relay was shut down while the call ran."),
    ErrorKind.INTERNAL: _("A fault of the relay. Its operators find it in the log under the call's id."),
    # Written by whoever takes over the journal of a process that is no more (relay.metering.takeover).
    "process_killed": _("The process was ended from outside, or its machine was."),
}
# Kinds of which there can be records: without a key, or at no path of ours, nobody is known whose record it would be.
RECORDED_KINDS = tuple(
    str(kind)
    for kind in _BY_KIND
    if kind
    not in {
        ErrorKind.NO_KEY,
        ErrorKind.KEYS_DIFFER,
        ErrorKind.WRONG_KEY,
        ErrorKind.UNKNOWN_PATH,
        ErrorKind.UNKNOWN_METHOD,
    }
)
# What other words are right for once the answer had begun.
_AFTER_CONTENT: dict[str, Promise] = {
    CallStatus.UPSTREAM_ERROR: _("The answer broke off before its end. What had been delivered counts."),
    CallStatus.CLIENT_ERROR: _("The answer broke off before its end."),
}
_KIND_AFTER_CONTENT: dict[str, Promise] = {
    ErrorKind.UPSTREAM_BUSY: _("The upstream reported that it is at its limit."),
    ErrorKind.UPSTREAM_TIMEOUT: _("The upstream fell silent, or the answer took longer than is allowed."),
    ErrorKind.UPSTREAM_GARBAGE: _("A part of the upstream's answer could not be read."),
}
# A refusal where an upstream had been asked: the answer needed more than was held for it.
_STOPPED = _("The relay stopped the answer before its end. What had been delivered counts.")
_KIND_STOPPED: dict[str, Promise] = {
    ErrorKind.BALANCE_SPENT: _(
        "The answer outgrew what was held for it, and the balance does not cover more."
    ),
    ErrorKind.BUDGET_SPENT: _("The answer outgrew what was held for it, and a budget does not cover more."),
    ErrorKind.COUNTERS_AWAY: _(
        "The answer outgrew what was held for it, and the limits could not be checked."
    ),
}
_RELAY_FAILED = _("The relay failed on this call.")
_GONE_EARLY = _("The client hung up before the answer began.")
_BY_END_REASON: dict[str, Promise] = {
    "stop": _("The model came to its end."),
    "end_turn": _("The model came to its end."),
    "stop_sequence": _("The model came to a stop sequence of the request."),
    "length": _("The answer reached the token limit of the request or the model."),
    "max_tokens": _("The answer reached the token limit of the request or the model."),
    "tool_calls": _("The model asked for a tool."),
    "tool_use": _("The model asked for a tool."),
    "function_call": _("The model asked for a tool."),
    "content_filter": _("The answer was stopped by a content filter."),
    "sensitive": _("The answer was stopped by a content filter."),
    "refusal": _("The model declined to answer."),
    "insufficient_system_resource": _("The upstream ran out of means to go on."),
    "done_without_finish": _("The stream was closed in order but named no reason."),
    "no_terminal_event": _("The stream had not come to an end."),
}


class Ending:
    """How a call ended, in sentences: what happened, and why as far as it is known."""

    def __init__(self, happened: Promise | str, why: Promise | str = "") -> None:
        self.happened = happened
        self.why = why


def explain_ending(call: UsageRecord) -> Ending:
    """Sentences for the status, the error kind and the end reason of a call, and for how far its answer had come."""
    kind, has_begun = call.error_kind, call.ttft_ms is not None
    happened, why = _BY_STATUS.get(call.status, call.status), _BY_KIND.get(kind, "")
    match call.status:
        case CallStatus.OK:
            why = _explain_end(call.end_reason)
        case CallStatus.CLIENT_GONE:
            happened = happened if has_begun else _GONE_EARLY
        case CallStatus.REFUSED if has_begun or call.attempts:
            happened, why = _STOPPED, _KIND_STOPPED.get(kind, why)
        case CallStatus.UPSTREAM_ERROR if kind == ErrorKind.INTERNAL:
            happened = _RELAY_FAILED
        case CallStatus.UPSTREAM_ERROR | CallStatus.CLIENT_ERROR if has_begun:
            happened, why = _AFTER_CONTENT[call.status], _KIND_AFTER_CONTENT.get(kind, why)
    return Ending(happened, why)


def _explain_end(reason: str) -> Promise | str:
    known = _BY_END_REASON.get(reason)
    if known is None and reason:
        return gettext("The upstream gave its own reason for the end: %s.") % reason
    return known or ""


def attempt_result(result: str, *, is_last: bool, status: str) -> Promise | str:
    """What an attempt came to. The last one may have begun to answer and not come to the end."""
    if result == "ok" and is_last and status != CallStatus.OK:
        return _BEGAN
    return ATTEMPT_RESULTS.get(result, result)
