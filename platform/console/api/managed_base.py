"""What the key-managed endpoints on the relay's own paths have in common.

The relay hands `/v1/usage`, `/v1/balance`, `/v1/apikeys` and `/v1/apikey_groups` over. The key stands in any of the
five places that calls use, and errors have the form of OpenAI's, since the programs that ask speak that dialect.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Key
from console.api.authentication import KeyCaller, recognise_key
from console.api.errors import error_headers, known_error, named_errors
from relay.admission.authenticate import key_in
from relay.errors import Refusal

__all__ = ["KeyRequest", "ManagedView", "ManagingView"]

_KEY_HEADERS = {
    "HTTP_AUTHORIZATION": b"authorization",
    "HTTP_X_API_KEY": b"x-api-key",
    "HTTP_X_GOOG_API_KEY": b"x-goog-api-key",
    "HTTP_API_KEY": b"api-key",
}
_TYPES = {403: "permission_error", 429: "rate_limit_error", 503: "service_unavailable_error"}
_CODES = {401: "invalid_api_key", 403: "insufficient_scope", 404: "not_found", 409: "conflict"}


class AnyPlaceKeyAuthentication(authentication.BaseAuthentication):
    """A key in any of the five places; two that differ are refused, since one may be somebody else's."""

    def authenticate(self, request: Request) -> tuple[KeyCaller, Key]:
        headers = [
            (name, request.META[meta].encode("latin-1", "replace"))
            for meta, name in _KEY_HEADERS.items()
            if meta in request.META
        ]
        try:
            value = key_in(headers, request.META.get("QUERY_STRING", "").encode("latin-1", "replace"))
        except Refusal as exc:
            raise exceptions.AuthenticationFailed(exc.message) from exc
        caller = recognise_key(value.decode("latin-1"))
        return caller, caller.key

    def authenticate_header(self, request: HttpRequest) -> str:
        return 'Bearer realm="yizhan"'


class HasManageScope(permissions.BasePermission):
    """Only keys with the scope `manage` or `operate`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        self.message = _("This key may only call models. This endpoint takes a key with the scope manage.")
        return isinstance(request.user, KeyCaller) and bool(request.user.acting.permissions)


class KeyRequest(Request):
    """What these endpoints are given: a request that a key was recognised in."""

    user: KeyCaller  # type: ignore[assignment] # a program, not a person
    auth: Key


class ManagedView(APIView):
    """Open to every live key. Not part of the control API's schema."""

    authentication_classes = [AnyPlaceKeyAuthentication]
    permission_classes = [permissions.IsAuthenticated]
    schema = None

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        return openai_error


class ManagingView(ManagedView):
    """Open to keys that manage their organization."""

    permission_classes = [permissions.IsAuthenticated, HasManageScope]


def openai_error(exc: Exception, context: dict[str, Any]) -> Response:
    """REST framework's exception handler for these endpoints."""
    known = known_error(exc, context)
    code = int(known.status_code)
    errors = named_errors(known)
    message = " ".join(f"{error['name']}: {error['reason']}" for error in errors) or str(known.detail)
    kind = _TYPES.get(code, "server_error" if code >= 500 else "invalid_request_error")
    param = errors[0]["name"] if errors else None
    body = {"error": {"message": message, "type": kind, "param": param, "code": _CODES.get(code)}}
    return Response(body, status=code, headers=error_headers(known))
