"""What a request gets whose `Host` is none of ours: which setting is meant, instead of a bare 400.

The name itself is not repeated, and neither are the names that are known.
"""

from http import HTTPStatus

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views import defaults

__all__ = ["bad_request"]

_PROGRAMS = ("/api/", "/v1/")
_DETAIL = (
    "Nothing is served under the host name of this request. Use the address that the start printed after `ready:`,"
    " or set PUBLIC_URL to the address that people and programs use, and start again."
)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of 400: nothing in the page may ask for the host, so it has no frame."""
    if not isinstance(exception, DisallowedHost):
        return defaults.bad_request(request, exception)
    status = HTTPStatus.BAD_REQUEST
    if request.path_info.startswith(_PROGRAMS):
        problem = {
            "type": "about:blank",
            "title": status.phrase,
            "status": int(status),
            "detail": _DETAIL,
            "code": "unknown_host",
        }
        return JsonResponse(problem, status=status, content_type="application/problem+json")
    return HttpResponse(render_to_string("unknown_host.html"), status=status)
