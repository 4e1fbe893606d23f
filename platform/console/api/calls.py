"""`/api/v1/calls/`: the call log for programs."""

import uuid
from datetime import datetime
from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.models import CallStatus, UsageRecord
from console.api.authentication import MayUseControlApi
from console.api.call_records import CallSerializer
from console.api.callers import ApiCaller, entered
from console.api.pages import (
    ORGANIZATION_PARAMETER,
    PAGE_PARAMETERS,
    page_response,
    page_serializer,
    page_size,
)
from console.api.problems import refusals
from console.bounded import bounded
from console.calls.filters import parse_filters
from console.calls.queries import find_call, find_names, list_calls, read_cursor

__all__ = ["CallList", "CallPage"]

_MOMENT = "ISO 8601; without an offset it is in the organization's time zone."
_FILTERS = [
    OpenApiParameter("from", datetime, description=f"Not before this moment. {_MOMENT}"),
    OpenApiParameter("to", datetime, description=f"Before this moment. {_MOMENT}"),
    OpenApiParameter("model", str),
    OpenApiParameter("key", str, description="Name or prefix of a key."),
    OpenApiParameter("member", str, description="E-mail address or id of a member."),
    OpenApiParameter(
        "status", str, description=f"One or more, with commas, of {', '.join(CallStatus.values)}."
    ),
    OpenApiParameter("error_kind", str),
    OpenApiParameter("task_id", str),
    OpenApiParameter("min_ttft_ms", float),
    OpenApiParameter("min_total_ms", float),
    OpenApiParameter("stream", bool),
]


class CallList(APIView):
    """Calls in sight, newest first."""

    permission_classes = [MayUseControlApi]

    @extend_schema(
        operation_id="calls_list",
        parameters=[*_FILTERS, *PAGE_PARAMETERS],
        responses={200: page_serializer(CallSerializer), **refusals(400, 404)},
    )
    def get(self, request: Request) -> Response:
        """The newest calls that the filters let through.

        Where something rare is asked for, a page ends after a bounded search: with fewer results than `page_size`, or
        none, and a `next` that goes on from there. Only a `next` of null is the end of the list.
        """
        with entered(request) as caller:
            words = request.query_params
            filters = parse_filters(words, caller.zone)
            after = read_cursor(words["cursor"]) if words.get("cursor") else None
            with bounded():
                page = list_calls(caller.sight, filters, after=after, size=page_size(request))
            return page_response(request, _serialized(caller, page.calls), page.next_cursor)


class CallPage(APIView):
    """One call."""

    permission_classes = [MayUseControlApi]

    @extend_schema(
        operation_id="calls_retrieve",
        parameters=[ORGANIZATION_PARAMETER],
        responses={200: CallSerializer, **refusals(404)},
    )
    def get(self, request: Request, call_id: uuid.UUID) -> Response:
        """The call with this `X-Call-Id`."""
        with entered(request) as caller:
            call = find_call(caller.sight, call_id)
            if call is None:
                raise Http404("no such call")
            return Response(_serialized(caller, [call])[0])


def _serialized(caller: ApiCaller, calls: list[UsageRecord]) -> Any:
    names = find_names(calls, organizations=True)
    context = {"names": names, "operator": caller.acting.is_operator}
    return CallSerializer(calls, many=True, context=context).data
