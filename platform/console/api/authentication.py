"""Who calls the control API: a program with a key as bearer, or a person with a console session.

A key is known by its HMAC fingerprint under the server's peppers. One that is unknown, revoked or expired is a 401
that does not say which; one that may only call models is a 403.
"""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request

from accounts import scope
from accounts.models import Key
from accounts.permissions import Acting
from accounts.queries import find_key

__all__ = ["KeyAuthentication", "KeyCaller", "MayUseControlApi", "recognise_key"]

_MAX_KEY_LENGTH = 512
_REALM = 'Bearer realm="yizhan"'


@dataclass(frozen=True, slots=True)
class KeyCaller:
    """What `request.user` is for a program."""

    key: Key
    acting: Acting

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def pk(self) -> None:
        """No row of the user table."""
        return None


def recognise_key(value: str) -> KeyCaller:
    """The caller with this key. Raises AuthenticationFailed if it is unknown, revoked or expired."""
    if len(value) <= _MAX_KEY_LENGTH:
        with scope.site("key look-up"):
            key = find_key(value)
        if key is not None and key.revoked_at is None and not _is_expired(key):
            if not key.organization.enabled:
                raise exceptions.PermissionDenied(_("The organization of this key is switched off."))
            return KeyCaller(key, Acting.of_key(key))
    raise exceptions.AuthenticationFailed(_("This key is not valid."))


def _is_expired(key: Key) -> bool:
    return key.expires_at is not None and key.expires_at <= timezone.now()


class KeyAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer <key>`."""

    def authenticate(self, request: Request) -> tuple[KeyCaller, Key] | None:
        kind, _sep, value = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        caller = recognise_key(value.strip())
        return caller, caller.key

    def authenticate_header(self, request: HttpRequest) -> str:
        return _REALM


class MayUseControlApi(permissions.BasePermission):
    """People by their role; keys only with the scope `manage` or `operate`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if isinstance(request.user, KeyCaller) and not request.user.acting.permissions:
            self.message = _(
                "This key may only call models. The control API takes a key with the scope manage."
            )
            return False
        return bool(request.user and request.user.is_authenticated)


class KeyScheme(OpenApiAuthenticationExtension):
    """How the schema describes KeyAuthentication. Found by drf-spectacular through its class."""

    target_class = KeyAuthentication
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A key with the scope manage or operate."}
