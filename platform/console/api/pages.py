"""Pages of the control API's lists: `{"results": [...], "next": address or null}`, newest first."""

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from console.calls.filters import BadFilters

__all__ = [
    "ORGANIZATION_PARAMETER",
    "PAGE_PARAMETERS",
    "next_address",
    "page_response",
    "page_serializer",
    "page_size",
]

DEFAULT_SIZE = 50
MAX_SIZE = 200
_DIGITS = 9

ORGANIZATION_PARAMETER = OpenApiParameter(
    "organization",
    str,
    description="Name of the organization. For operators (who see all of them without it) and for people with several.",
)
PAGE_PARAMETERS = [
    OpenApiParameter(
        "cursor", str, description="Where the page begins; taken from `next` of the page before."
    ),
    OpenApiParameter(
        "page_size",
        {"type": "integer", "minimum": 1, "default": DEFAULT_SIZE},
        description=f"How many at most; more than {MAX_SIZE} counts as {MAX_SIZE}.",
    ),
    ORGANIZATION_PARAMETER,
]


def page_size(request: Request) -> int:
    """The size that was asked for, bounded. Raises BadFilters for what is no number above 0."""
    text = request.query_params.get("page_size", "")
    if not text:
        return DEFAULT_SIZE
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) > 0):
        raise BadFilters({"page_size": _("must be a whole number above 0")})
    return min(int(text), MAX_SIZE)


def page_response(request: Request, results: Any, next_cursor: str | None) -> Response:
    """One page; `next` is this very address with the next cursor."""
    return Response({"results": results, "next": next_address(request, next_cursor)})


def next_address(request: Request, next_cursor: str | None) -> str | None:
    """This request's address with the next cursor, or None on the last page."""
    return replace_query_param(request.build_absolute_uri(), "cursor", next_cursor) if next_cursor else None


def page_serializer(item: type[serializers.Serializer]) -> type[serializers.Serializer]:
    """The serializer that describes a page of `item` in the schema."""
    name = item.__name__.removesuffix("Serializer")
    return type(
        f"{name}PageSerializer",
        (serializers.Serializer,),
        {"results": item(many=True), "next": serializers.URLField(allow_null=True)},
    )
