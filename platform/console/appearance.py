"""Light or dark: as the system says, or as the reader chose; a cookie keeps it, so that the first paint is right."""

from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

__all__ = ["THEME_COOKIE", "choose_theme", "theme_of"]

THEME_COOKIE: Final = "theme"
THEMES: Final = ("light", "dark")
_YEAR_S: Final = 365 * 24 * 3600


def theme_of(request: HttpRequest) -> str:
    """`light`, `dark` or, where the system decides, nothing."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return theme if theme in THEMES else ""


@require_POST
def choose_theme(request: HttpRequest) -> HttpResponse:
    """Remember the theme and go back to the page the form stood on. Any other word leaves it to the system."""
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = "/"
    response = HttpResponseRedirect(target)
    theme = request.POST.get("theme", "")
    if theme in THEMES:
        response.set_cookie(
            THEME_COOKIE, theme, max_age=_YEAR_S, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE
        )
    else:
        response.delete_cookie(THEME_COOKIE, samesite="Lax")
    return response
