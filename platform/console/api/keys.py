"""`/api/v1/keys/`: an organization's keys for programs that hand them out."""

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.errors import Invalid
from accounts.models import Key
from accounts.services.keys import KeyTerms, create_key, revoke_key
from console.api.authentication import MayUseControlApi
from console.api.callers import entered
from console.api.key_access import change_found_key, find_key
from console.api.key_records import (
    KeyChangeSerializer,
    KeyCreatedSerializer,
    KeySerializer,
    NewKeySerializer,
    changed_terms,
)
from console.api.pages import (
    ORGANIZATION_PARAMETER,
    PAGE_PARAMETERS,
    page_response,
    page_serializer,
    page_size,
)
from console.api.problems import refusals
from console.calls.filters import BadFilters
from console.keys.queries import list_keys, read_cursor, spent_by_key

__all__ = ["KeyList", "KeyPage"]

_STATES = {"live": True, "revoked": False}


class KeyList(APIView):
    """Keys in sight, newest first."""

    permission_classes = [MayUseControlApi]

    @extend_schema(
        operation_id="keys_list",
        parameters=[
            OpenApiParameter("state", str, enum=[*_STATES], description="Left out: revoked ones too."),
            *PAGE_PARAMETERS,
        ],
        responses={200: page_serializer(KeySerializer), **refusals(400, 404)},
    )
    def get(self, request: Request) -> Response:
        """The newest keys."""
        with entered(request) as caller:
            words = request.query_params
            keys = caller.keys()
            if state := words.get("state"):
                if state not in _STATES:
                    raise BadFilters({"state": f"must be one of: {', '.join(_STATES)}"})
                keys = keys.filter(revoked_at__isnull=_STATES[state])
            after = read_cursor(words["cursor"]) if words.get("cursor") else None
            page = list_keys(keys, after=after, size=page_size(request))
            context = {"spent": spent_by_key(page.keys)}
            return page_response(
                request, KeySerializer(page.keys, many=True, context=context).data, page.next_cursor
            )

    @extend_schema(
        operation_id="keys_create",
        parameters=[ORGANIZATION_PARAMETER],
        request=NewKeySerializer,
        responses={201: KeyCreatedSerializer, **refusals(400, 404, 409, 415)},
    )
    def post(self, request: Request) -> Response:
        """Make a key. Its clear text is in the answer and nowhere else."""
        given = NewKeySerializer(data=request.data)
        given.is_valid(raise_exception=True)
        with entered(request) as caller:
            organization = caller.organization
            if organization is None:
                raise Invalid("organization", "Name the organization that the key is for.")
            made = create_key(
                acting=caller.acting,
                organization=organization,
                name=given.validated_data["name"],
                terms=changed_terms(KeyTerms(), given.validated_data, organization),
            )
            context = {"spent": {}, "value": made.clear}
            headers = {"Cache-Control": "no-store"}
            body = KeyCreatedSerializer(made.key, context=context).data
            return Response(body, status=status.HTTP_201_CREATED, headers=headers)


class KeyPage(APIView):
    """One key."""

    permission_classes = [MayUseControlApi]

    @extend_schema(
        operation_id="keys_retrieve",
        parameters=[ORGANIZATION_PARAMETER],
        responses={200: KeySerializer, **refusals(404)},
    )
    def get(self, request: Request, key_id: int) -> Response:
        """The key with this id."""
        with entered(request) as caller:
            return Response(_serialized(find_key(caller, key_id)))

    @extend_schema(
        operation_id="keys_change",
        parameters=[ORGANIZATION_PARAMETER],
        request=KeyChangeSerializer,
        responses={200: KeySerializer, **refusals(400, 404, 409, 415)},
    )
    def patch(self, request: Request, key_id: int) -> Response:
        """Change a live key. Every relay process has it within a second."""
        given = KeyChangeSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        with entered(request) as caller:
            fields = given.validated_data
            key = change_found_key(
                caller,
                key_id,
                name=fields.get("name"),
                terms=lambda terms, organization: changed_terms(terms, fields, organization),
            )
            return Response(_serialized(key))

    @extend_schema(
        operation_id="keys_revoke",
        parameters=[ORGANIZATION_PARAMETER],
        request=None,
        responses={204: OpenApiResponse(description="Revoked, now or before."), **refusals(404)},
    )
    def delete(self, request: Request, key_id: int) -> Response:
        """Revoke a key, for good."""
        with entered(request) as caller:
            revoke_key(acting=caller.acting, key=find_key(caller, key_id), reason="control API")
            return Response(status=status.HTTP_204_NO_CONTENT)


def _serialized(key: Key) -> dict[str, object]:
    return KeySerializer(key, context={"spent": spent_by_key([key])}).data
