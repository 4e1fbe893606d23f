"""What may be kept of an answer: nothing, for nearly all of them show one person's or one organization's data.

A proxy in between or a shared browser could otherwise show it to somebody else. A view that knows better sets the
header itself. Static files are answered further out, with their own.
"""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

__all__ = ["keep_nothing"]


@sync_and_async_middleware
def keep_nothing(
    get_response: Callable[[HttpRequest], Any],
) -> Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    """Middleware: `Cache-Control: private, no-store` on every answer that has no such header."""
    if iscoroutinefunction(get_response):

        async def waiting(request: HttpRequest) -> HttpResponseBase:
            return _marked(await get_response(request))

        return waiting

    def direct(request: HttpRequest) -> HttpResponseBase:
        return _marked(get_response(request))

    return direct


def _marked(response: HttpResponseBase) -> HttpResponseBase:
    response.headers.setdefault("Cache-Control", "private, no-store")
    return response
