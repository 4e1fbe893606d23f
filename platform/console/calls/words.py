"""Names and sentences for what the call record says in code words: stages, parties, endings, errors.

Unknown words (a newer relay, another release) are shown as they are; nothing here fails on them.
"""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from billing.models import CallStatus, UsageRecord
from relay.errors import ErrorKind

__all__ = ["PARTY_NAMES", "STAGE_HELP", "STAGE_NAMES", "TOKEN_NAMES", "Ending", "explain_ending"]

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
}
_BY_END_REASON: dict[str, Promise] = {
    "stop": _("The model came to its end."),
    "end_turn": _("The model came to its end."),
    "stop_sequence": _("The model came to a stop sequence of the request."),
    "length": _("The answer reached the token limit of the request or the model."),
    "max_tokens": _("The answer reached the token limit of the request or the model."),
    "tool_calls": _("The model asked for a tool."),
    "tool_use": _("The model asked for a tool."),
    "content_filter": _("The answer was stopped by a content filter."),
    "refusal": _("The model declined to answer."),
    "done_without_finish": _("The stream was closed in order but named no reason."),
    "client_gone": _("The client hung up."),
    "budget": _("The answer outgrew the budget and was stopped."),
}


class Ending:
    """How a call ended, in sentences: what happened, and why as far as it is known."""

    def __init__(self, happened: Promise | str, why: Promise | str = "") -> None:
        self.happened = happened
        self.why = why


def explain_ending(call: UsageRecord) -> Ending:
    """Sentences for the status, the error kind and the end reason of a call."""
    happened = _BY_STATUS.get(call.status, call.status)
    return Ending(happened, _BY_KIND.get(call.error_kind) or _BY_END_REASON.get(call.end_reason) or "")
