"""The list of calls and the page of one call."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.queries import members_of
from billing.models import CallStatus
from console import cursor
from console.bounded import bounded
from console.calls import arithmetic, attempts, queries, waterfall, words
from console.calls.filters import FILTER_NAMES, RANGES, BadFilters, parse_filters
from console.gate import PageRequest, Visitor, organization_page
from console.overview.queries import ERROR_STATUSES
from relay.models import Model

__all__ = ["call_list", "call_page"]

PAGE_SIZE = 50
# Bounds a list without words: an organization of long standing would else be searched from its first day.
_DEFAULT_RANGE = "7d"
_MAX_SUGGESTIONS = 200
_LIST_FIELDS = (
    "created_at",
    "id",
    "organization_id",
    "member_id",
    "key_id",
    "model",
    "status",
    "http_status",
    "stream",
    "uncached_input_tokens",
    "cached_input_tokens",
    "cache_write_5m_tokens",
    "cache_write_30m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "ttft_ms",
    "total_ms",
    "amount_nano",
    "currency",
    "upstream",
)
# Those that the form shows where one of them is in use, or on request.
_MORE_FILTERS = ("member", "min_total_ms", "error_kind")
_RANGE_NAMES = {
    "1h": _("1 h"),
    "24h": _("24 h"),
    "7d": _("7 days"),
    "30d": _("30 days"),
    "all": _("All"),
    "custom": _("From – to"),
}


@organization_page()
def call_list(request: PageRequest) -> HttpResponse:
    visitor = request.visitor
    words_given = request.GET
    chosen_range = _range_of(words_given)
    errors: dict[str, str] = {}
    page = queries.CallPage([], None)
    try:
        page = _find_page(visitor, words_given, chosen_range)
    except BadFilters as exc:
        errors = exc.errors
    except cursor.BadCursor:
        errors = {"cursor": str(_("This page of the list does not exist. Start again from the newest call."))}
    shown = {name: words_given[name] for name in (*FILTER_NAMES, "range") if words_given.get(name)}
    context = {
        "page": page,
        "names": queries.find_names(page.calls),
        "scale_ms": _scale_ms([call.total_ms for call in page.calls]),
        "errors": errors,
        "words": words_given,
        "ranges": [(name, title, name == chosen_range) for name, title in _RANGE_NAMES.items()],
        "chosen_range": chosen_range,
        "statuses": [*CallStatus.choices, (",".join(ERROR_STATUSES), _("Any error"))],
        "models": Model.objects.order_by("name").values_list("name", flat=True)[:_MAX_SUGGESTIONS],
        "keys": queries.visible_keys(visitor.sight)
        .filter(revoked_at=None)
        .order_by("name")
        .values_list("name", flat=True)[:_MAX_SUGGESTIONS],
        "members": members_of(visitor.organization).values_list("user__email", flat=True)[:_MAX_SUGGESTIONS]
        if visitor.sees_all_calls
        else (),
        "error_kinds": words.RECORDED_KINDS,
        "more_filters": any(words_given.get(name) for name in _MORE_FILTERS),
        "narrowed": any(name in shown for name in FILTER_NAMES if name not in ("from", "to")),
        "is_first_page": "cursor" not in words_given,
        "next_url": visitor.url("console:call_list", **shown, cursor=page.next_cursor)
        if page.next_cursor
        else "",
        "first_url": visitor.url("console:call_list", **shown),
    }
    return render(request, "console/call_list.html", context)


@organization_page()
def call_page(request: PageRequest, call_id: uuid.UUID) -> HttpResponse:
    visitor = request.visitor
    call = queries.find_call(visitor.sight, call_id)
    if call is None:
        raise Http404("no such call")
    names = queries.find_names([call])
    tried = attempts.attempt_rows(call.attempts, operator=visitor.is_operator)
    context = {
        "call": call,
        "key_name": names.keys.get(call.key_id, ""),
        "member_name": names.members.get(call.member_id, ""),
        "ending": words.explain_ending(call),
        "bill": arithmetic.explain_amount(call),
        "waterfall": waterfall.draw_waterfall(
            call.stages, call.total_ms, ttft_ms=call.ttft_ms, ttfb_ms=call.ttfb_ms
        ),
        "attempts": [
            (attempt, words.attempt_result(attempt.result, is_last=n == len(tried), status=call.status))
            for n, attempt in enumerate(tried, 1)
        ],
        "has_details": any(attempt.details for attempt in tried),
        "stage_names": words.STAGE_NAMES,
        "stage_help": words.STAGE_HELP,
        "party_names": words.PARTY_NAMES,
        "token_names": words.TOKEN_NAMES,
        "cache_hit_ratio": call.cached_input_tokens / call.input_tokens if call.input_tokens else None,
    }
    return render(request, "console/call_page.html", context)


def _range_of(given: Mapping[str, str]) -> str:
    name = given.get("range", "")
    if name in _RANGE_NAMES:
        return name
    return "custom" if given.get("from") or given.get("to") else _DEFAULT_RANGE


def _scale_ms(totals: list[float]) -> float:
    """What fills the bar beside a call: nine calls of ten fit, so that one slow one does not flatten the rest."""
    return sorted(totals)[int(0.9 * (len(totals) - 1))] if totals else 0.0


def _find_page(visitor: Visitor, given: Mapping[str, str], chosen_range: str) -> queries.CallPage:
    """Raises BadFilters, BadCursor."""
    taken = {name: given.get(name, "") for name in FILTER_NAMES}
    if chosen_range != "custom":
        taken["from"] = taken["to"] = ""
    filters = parse_filters(taken, visitor.zone)
    if chosen_range in RANGES:
        filters = replace(filters, start=timezone.now() - RANGES[chosen_range])
    after: Any = queries.read_cursor(given["cursor"]) if given.get("cursor") else None
    with bounded():
        return queries.list_calls(visitor.sight, filters, after=after, size=PAGE_SIZE, only=_LIST_FIELDS)
