"""Names and sentences for what the call record says in code words: stages, parties, endings, errors.

Unknown words (a newer relay, another release) are shown as they are; nothing here fails on them.
"""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from billing.models import CallStatus, UsageRecord

__all__ = ["PARTY_NAMES", "STAGE_HELP", "STAGE_NAMES", "TOKEN_NAMES", "Ending", "explain_ending"]

STAGE_NAMES: dict[str, Promise] = {
    "receive": _("Receive the request"),
    "queue": _("Wait for a place"),
    "auth": _("Check the key"),
    "permit": _("Check limits, take a hold"),
    "route": _("Choose an upstream"),
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
    "receive": _("Until the whole request body had arrived."),
    "queue": _("Until the relay began to work on the call."),
    "auth": _("The key is looked up in memory."),
    "permit": _("One round trip to the limit store."),
    "route": _("Price, cache, load and health of each candidate."),
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
    "invalid_request": _("A field of the request is missing, of the wrong kind or out of its range."),
    "invalid_json": _("The request body is not valid JSON."),
    "unsupported_parameter": _("The request asks for something that this model's upstream cannot be told."),
    "context_length_exceeded": _("The prompt is longer than the model can read."),
    "invalid_api_key": _("The key is unknown, revoked or expired."),
    "model_not_allowed": _("The key may not call this model."),
    "model_not_found": _("No model of this name is on offer."),
    "body_too_large": _("The request body is larger than the relay takes."),
    "rate_limit_exceeded": _("A limit on calls or tokens a minute, or on calls at once, was reached."),
    "insufficient_quota": _("The budget or the balance does not cover the call."),
    "content_policy_violation": _("The upstream declined the content."),
    "server_is_overloaded": _("Every upstream that offers the model was busy or away."),
    "upstream_error": _("The upstream failed or answered with an error."),
    "upstream_timeout": _("The upstream did not answer in time."),
    "upstream_cut": _("The connection to the upstream broke in the middle of the answer."),
    "stalled": _("The upstream stopped sending for longer than is allowed."),
    "limits_unavailable": _("The limits could not be checked, so the call was refused."),
    "internal": _("A fault of the relay. Its operators find it in the log under the call's id."),
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
