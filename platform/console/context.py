"""What every page needs: the rooms of the console, who looks, and how the page is dressed."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from console.appearance import theme_of
from console.gate import Visitor

__all__ = ["console"]


@dataclass(frozen=True, slots=True)
class Room:
    """One entry of the navigation: its first page, and what the names of all its pages begin with (one or several).

    `needs` names a property of `Visitor` that must hold to see it.
    """

    page: str
    views: tuple[str, ...]
    title: Promise
    icon: str
    needs: str = ""


_ROOMS = (
    Room("console:overview", ("console:overview",), _("Overview"), "house"),
    Room("console:call_list", ("console:call_",), _("Calls"), "route"),
    Room("console:key_list", ("console:key_",), _("Keys"), "key-round"),
    Room("console:money", ("console:money", "console:top_up"), _("Money"), "wallet", "sees_money"),
)


def console(request: HttpRequest) -> dict[str, Any]:
    """Django's context processor."""
    visitor: Visitor | None = getattr(request, "visitor", None)
    match = getattr(request, "resolver_match", None)
    here = match.view_name if match is not None else ""
    return {
        "theme": theme_of(request),
        "languages": settings.LANGUAGES,
        "visitor": visitor,
        "rooms": [
            {
                "url": visitor.url(room.page),
                "title": room.title,
                "icon": room.icon,
                "current": here.startswith(room.views),
            }
            for room in _ROOMS
            if not room.needs or getattr(visitor, room.needs)
        ]
        if visitor is not None
        else [],
    }
