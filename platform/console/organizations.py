"""The list of organizations that a person may look at: their own, for operators all of them."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render

from accounts import scope
from accounts.models import Organization
from console.gate import PageRequest

__all__ = ["organization_list"]

_MAX_SHOWN = 100


@login_required
def organization_list(request: PageRequest) -> HttpResponse:
    """Up to a hundred organizations whose name or title holds what was looked for."""
    asked = request.GET.get("q", "").strip()[:100].replace("\x00", "")
    with scope.site("list of organizations"):
        found = Organization.objects.order_by("title", "pk")
        if not request.user.is_operator:
            found = found.filter(members__user=request.user, members__enabled=True)
        if asked:
            found = found.filter(title__icontains=asked) | found.filter(name__icontains=asked)
        organizations = list(found[: _MAX_SHOWN + 1])
    context = {
        "organizations": organizations[:_MAX_SHOWN],
        "more": len(organizations) > _MAX_SHOWN,
        "asked": asked,
    }
    return render(request, "console/organization_list.html", context)
