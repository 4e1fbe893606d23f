"""The commonest slip of a set-up: a base address without its `/v1`, so that calls come to `/chat/completions`.

Such a call is no page. It is answered in the form that the caller's program reads, and told the right address.
"""

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

__all__ = ["PATHS", "without_v1"]

_SHOWN = 200
PATHS = (
    r"^(?:openai/)?(?:chat/completions|completions|embeddings|responses|messages|models(?:/.*)?|rerank"
    r"|moderations|images/generations|audio/\w+|balance|usage|apikeys(?:/.*)?)/?$"
)


@csrf_exempt
def without_v1(request: HttpRequest) -> HttpResponse:
    """404 that names the address with `/v1`. A person's browser gets the ordinary page."""
    if "text/html" in request.headers.get("Accept", ""):
        raise Http404("no page")
    path = request.path[:_SHOWN].encode("ascii", "replace").decode()
    right = path.removeprefix("/openai")
    message = (
        f"Unknown request URL: {request.method} {path}. Did you mean /v1{right}? "
        "The base address that a program is given ends in /v1."
    )
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": "unknown_url"}
    return JsonResponse({"error": error}, status=404)
