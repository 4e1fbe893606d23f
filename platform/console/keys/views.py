"""The keys of an organization: listed, handed out, changed, revoked."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from accounts.errors import Invalid
from accounts.models import Key
from accounts.queries import keys_for
from accounts.services.keys import change_key, create_key, may_manage, rename_key, revoke_key
from console import cursor
from console.gate import PageRequest, Visitor, organization_page
from console.keys import queries
from console.keys.forms import KeyForm

__all__ = ["key_change", "key_list", "key_new", "key_revoke"]

PAGE_SIZE = 50
_REASON_LENGTH = 100


@require_safe
@organization_page()
def key_list(request: PageRequest) -> HttpResponse:
    visitor = request.visitor
    revoked = request.GET.get("show") == "revoked"
    keys = keys_for(visitor.acting, visitor.organization).filter(revoked_at__isnull=not revoked)
    error, page = "", queries.KeyPage([], None)
    try:
        after = queries.read_cursor(request.GET["cursor"]) if request.GET.get("cursor") else None
        page = queries.list_keys(keys, after=after, size=PAGE_SIZE)
    except cursor.BadCursor:
        error = _("This page of the list does not exist. Start again from the newest key.")
    spent = queries.spent_by_key(page.keys)
    shown = {"show": "revoked" if revoked else ""}
    context = {
        "rows": [_row(visitor, key, spent.get(key.pk, 0), timezone.now()) for key in page.keys],
        "revoked": revoked,
        "error": error,
        "is_first_page": "cursor" not in request.GET,
        "first_url": visitor.url("console:key_list", **shown),
        "next_url": visitor.url("console:key_list", **shown, cursor=page.next_cursor)
        if page.next_cursor
        else "",
    }
    return render(request, "console/key_list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@organization_page(needs="manages_keys")
def key_new(request: PageRequest) -> HttpResponse:
    """The form of a new key; after it, once, its clear text."""
    visitor = request.visitor
    form = KeyForm(request.POST or None, organization=visitor.organization)
    if request.method == "POST" and form.is_valid():
        try:
            made = create_key(
                acting=visitor.acting,
                organization=visitor.organization,
                name=form.cleaned_data["name"],
                terms=form.terms(),
            )
        except Invalid as refusal:
            form.refuse(refusal)
        else:
            response = render(request, "console/key_made.html", {"key": made.key, "clear": made.clear})
            response["Cache-Control"] = "no-store"
            return response
    return render(request, "console/key_form.html", {"form": form, "key": None})


@require_http_methods(["GET", "HEAD", "POST"])
@organization_page()
def key_change(request: PageRequest, key_id: int) -> HttpResponse:
    """The page of a key. Who may not manage keys, and everybody for a revoked one, can only read it."""
    visitor = request.visitor
    key = _find_key(visitor, key_id)
    if request.method == "POST" and visitor.manages_keys:
        _require_management(visitor, key)
    may_change = may_manage(visitor.acting, key) and key.revoked_at is None
    form = KeyForm(
        request.POST if may_change and request.method == "POST" else None,
        organization=visitor.organization,
        key=key,
    )
    if form.is_bound and form.is_valid():
        try:
            with transaction.atomic():
                if form.cleaned_data["name"] != key.name:
                    rename_key(acting=visitor.acting, key=key, name=form.cleaned_data["name"])
                change_key(acting=visitor.acting, key=key, terms=form.terms())
        except Invalid as refusal:
            form.refuse(refusal)
        else:
            messages.success(request, _("Saved. Every relay process has it within a second."))
            return redirect(visitor.url("console:key_change", key.pk))
    spent = queries.spent_by_key([key])
    context = {
        "form": form,
        "key": key,
        "row": _row(visitor, key, spent.get(key.pk, 0), timezone.now()),
    }
    return render(request, "console/key_form.html" if may_change else "console/key_page.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@organization_page(needs="manages_keys")
def key_revoke(request: PageRequest, key_id: int) -> HttpResponse:
    """Asks once, then makes the key unusable for good."""
    visitor = request.visitor
    key = _find_key(visitor, key_id)
    _require_management(visitor, key)
    if request.method == "POST":
        revoke_key(
            acting=visitor.acting, key=key, reason=request.POST.get("reason", "").strip()[:_REASON_LENGTH]
        )
        messages.success(request, _("The key “%(name)s” is revoked.") % {"name": key.name})
        return redirect(visitor.url("console:key_list"))
    return render(request, "console/key_revoke.html", {"key": key, "reason_length": _REASON_LENGTH})


def _find_key(visitor: Visitor, key_id: int) -> Key:
    """Raises Http404 for a key that they may not see, as for one that does not exist."""
    keys = keys_for(visitor.acting, visitor.organization).select_related("member__user", "organization")
    key = keys.filter(pk=key_id).first() if key_id < 2**63 else None
    if key is None:
        raise Http404("no such key")
    return key


def _require_management(visitor: Visitor, key: Key) -> None:
    """Raises PermissionDenied for a key that takes an operator."""
    if not may_manage(visitor.acting, key):
        raise PermissionDenied("the key takes an operator")


def _row(visitor: Visitor, key: Key, spent_nano: int, now: datetime) -> dict[str, Any]:
    """A key as the list shows it: with its state, what the visitor may do and how far its budget is used."""
    state = "revoked" if key.revoked_at else "expired" if key.expires_at and key.expires_at <= now else "live"
    return {
        "key": key,
        "state": state,
        "may_manage": may_manage(visitor.acting, key),
        "spent_nano": spent_nano,
        "used_share": min(spent_nano / key.budget_nano, 1.0) if key.budget_nano else None,
    }
