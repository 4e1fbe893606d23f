"""Refusals of the control API as `application/problem+json` (RFC 9457).

`detail` is a sentence; `errors` names each parameter or field that cannot be taken. What nobody foresaw is a 500 of
the same form without any detail; the log has it.
"""

import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.signals import got_request_exception
from django.db import OperationalError
from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework import exceptions
from rest_framework.response import Response

from accounts.errors import Conflict, Invalid, NotAllowed
from console.calls.filters import BadFilters
from console.cursor import BadCursor

__all__ = ["error_headers", "known_error", "named_errors", "problem_response"]

_log = logging.getLogger(__name__)
# Chosen: a database or store that starts again is there after a few seconds.
_RETRY_AFTER_S = 2


class BadWords(exceptions.APIException):
    """Query parameters that cannot be read."""

    status_code = HTTPStatus.BAD_REQUEST
    default_code = "invalid"

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in errors.items()))
        self.errors = errors


class Taken(exceptions.APIException):
    """The request contradicts what there is already."""

    status_code = HTTPStatus.CONFLICT
    default_code = "conflict"


class TooLarge(exceptions.APIException):
    """The body is larger than we take."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class Away(exceptions.APIException):
    """The database does not answer, or not in time."""

    status_code = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "unavailable"


def translated(exc: Exception) -> Exception:
    """Our own exceptions as those of REST framework; others as they are."""
    match exc:
        case BadFilters():
            return BadWords(exc.errors)
        case BadCursor():
            return BadWords({"cursor": _("This is no cursor of this list.")})
        case NotAllowed():
            return exceptions.PermissionDenied(str(exc))
        case PermissionDenied():
            return exceptions.PermissionDenied()
        case Conflict():
            return Taken({exc.field: [str(exc)]})
        case Invalid():
            return exceptions.ValidationError({exc.field: [str(exc)]})
        case Http404():
            return exceptions.NotFound()
        case RequestDataTooBig():
            return TooLarge(_("The body is too large."))
        case OperationalError():
            _log.error("the database does not answer the control API", exc_info=exc)
            return Away(_("The database does not answer at the moment. Try again soon."))
    return exc


def known_error(exc: Exception, context: dict[str, Any]) -> exceptions.APIException:
    """The exception as one with a status. What nobody foresaw is logged and becomes a 500 without detail."""
    known = translated(exc)
    if isinstance(known, exceptions.APIException):
        return known
    got_request_exception.send(sender=None, request=context.get("request"))
    _log.error("the control API failed", exc_info=exc)
    return exceptions.APIException(_("Something broke here. The log of the console says what."))


def problem_response(exc: Exception, context: dict[str, Any]) -> Response:
    """REST framework's exception handler."""
    known = known_error(exc, context)
    status = int(known.status_code)
    errors = named_errors(known)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": "; ".join(f"{error['name']}: {error['reason']}" for error in errors) or str(known.detail),
        "code": known.default_code if errors else known.get_codes(),
    }
    if errors:
        body["errors"] = errors
    return Response(
        body, status=status, headers=error_headers(known), content_type="application/problem+json"
    )


def error_headers(exc: exceptions.APIException) -> dict[str, str]:
    """How to sign in, and when to try again."""
    headers = {"WWW-Authenticate": header} if (header := getattr(exc, "auth_header", None)) else {}
    if exc.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(_RETRY_AFTER_S)
    return headers


def named_errors(exc: exceptions.APIException) -> list[dict[str, str]]:
    """The parameters and fields at fault, each with its reason."""
    if isinstance(exc, BadWords):
        return [{"name": name, "reason": reason} for name, reason in exc.errors.items()]
    return list(_flat(exc.detail, "")) if isinstance(exc.detail, dict | list) else []


def _flat(detail: Any, name: str) -> Iterator[dict[str, str]]:
    """The leaves of REST framework's nested details, their names joined by points."""
    if isinstance(detail, dict):
        for key, value in detail.items():
            below = name if key == "non_field_errors" else f"{name}.{key}" if name else str(key)
            yield from _flat(value, below)
    elif isinstance(detail, list):
        for value in detail:
            yield from _flat(value, name)
    else:
        yield {"name": name or "body", "reason": str(detail)}
