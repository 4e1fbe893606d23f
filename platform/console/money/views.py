"""The wallet's page: what is there, what is held, and every posting."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.models import PostingKind
from console import cursor
from console.gate import PageRequest, organization_page
from console.money import held, queries

__all__ = ["money"]

PAGE_SIZE = 50
_VIEWS = {
    "all": (_("Everything"), ()),
    "credits": (_("Credits and corrections"), queries.CREDIT_KINDS),
    "usage": (_("Usage"), (PostingKind.USAGE.value,)),
}


@organization_page(needs="sees_money")
def money(request: PageRequest) -> HttpResponse:
    visitor = request.visitor
    chosen = request.GET.get("show", "all")
    if chosen not in _VIEWS:
        chosen = "all"
    error, page = "", queries.PostingPage([], None)
    try:
        after = queries.read_cursor(request.GET["cursor"]) if request.GET.get("cursor") else None
        page = queries.list_postings(
            visitor.organization.pk, kinds=_VIEWS[chosen][1], after=after, size=PAGE_SIZE
        )
    except cursor.BadCursor:
        error = gettext("This page of the list does not exist. Start again from the newest posting.")
    balance = queries.balance_nano(visitor.organization.pk)
    use = held.use_of(visitor.organization.pk, held.ORGANIZATION)
    shown = {"show": chosen if chosen != "all" else ""}
    context = {
        "balance": balance,
        "held": None if use is None else use.held_nano,
        "available": None if use is None else balance - use.held_nano,
        "currency": visitor.organization.currency,
        "page": page,
        "error": error,
        "kind_names": dict(PostingKind.choices),
        "views": [
            (name, title, name == chosen, visitor.url("console:money", show=name if name != "all" else ""))
            for name, (title, _kinds) in _VIEWS.items()
        ],
        "chosen": chosen,
        "is_first_page": "cursor" not in request.GET,
        "first_url": visitor.url("console:money", **shown),
        "next_url": visitor.url("console:money", **shown, cursor=page.next_cursor)
        if page.next_cursor
        else "",
    }
    return render(request, "console/money.html", context)
