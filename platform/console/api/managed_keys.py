"""`/v1/apikeys` and `/v1/apikey_groups`: keys handed out by a program that holds a managing key."""

from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _
from rest_framework import serializers, status
from rest_framework.response import Response

from accounts.errors import Invalid
from accounts.models import Key, Organization, Scope
from accounts.services.keys import KeyTerms, create_key, revoke_key
from console.api.callers import entered
from console.api.fields import AmountField, BodySerializer, MomentField
from console.api.key_access import change_found_key, find_key
from console.api.key_records import changed_terms
from console.api.managed_base import KeyRequest, ManagingView
from console.api.pages import next_address, page_size
from console.calls.filters import parse_moment
from console.keys.queries import list_keys, read_cursor, spent_by_key

__all__ = ["ApiKeyGroups", "ApiKeyList", "ApiKeyPage"]

# Words of this interface for what a key cannot carry here. Giving one a value is refused, never dropped.
_NOT_OFFERED = ("group_id", "daily_limit", "monthly_limit", "input_price_limit", "output_price_limit")


class ApiKeyChange(BodySerializer):
    """What may be said about a key; what is left out stays as it is."""

    name = serializers.CharField(required=False, max_length=100)
    budget = AmountField(required=False, allow_null=True)
    expiry_date = serializers.CharField(required=False, allow_null=True, max_length=40)
    models = serializers.ListField(
        child=serializers.CharField(max_length=200), required=False, allow_null=True, allow_empty=False
    )
    scopes = serializers.ListField(
        child=serializers.ChoiceField(Scope.choices), required=False, allow_empty=False
    )
    member = serializers.EmailField(required=False, allow_null=True)

    def also_known(self) -> tuple[str, ...]:
        return _NOT_OFFERED

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        refused = [name for name in _NOT_OFFERED if self.initial_data.get(name) is not None]
        if refused:
            raise serializers.ValidationError({name: _("is not offered here.") for name in refused})
        return attrs


class NewApiKey(ApiKeyChange):
    name = serializers.CharField(max_length=100)


class ApiKeyList(ManagingView):
    """The live keys of the organization."""

    def get(self, request: KeyRequest) -> Response:
        with entered(request) as caller:
            words = request.query_params
            after = read_cursor(words["cursor"]) if words.get("cursor") else None
            page = list_keys(caller.keys().filter(revoked_at=None), after=after, size=page_size(request))
            spent = spent_by_key(page.keys)
            rows = [_row(key, spent.get(key.pk, 0)) for key in page.keys]
            following = next_address(request, page.next_cursor)
            return Response(
                {"object": "list", "data": rows, "has_more": following is not None, "next": following}
            )

    def post(self, request: KeyRequest) -> Response:
        given = NewApiKey(data=request.data)
        given.is_valid(raise_exception=True)
        with entered(request) as caller:
            organization = caller.organization or request.auth.organization
            made = create_key(
                acting=caller.acting,
                organization=organization,
                name=given.validated_data["name"],
                terms=_terms(KeyTerms(), given.validated_data, organization),
            )
            headers = {"Cache-Control": "no-store"}
            return Response(
                {**_row(made.key, 0), "key": made.clear}, status.HTTP_201_CREATED, headers=headers
            )


class ApiKeyPage(ManagingView):
    """One key."""

    def get(self, request: KeyRequest, key_id: int) -> Response:
        with entered(request) as caller:
            return Response(_single(find_key(caller, key_id)))

    def patch(self, request: KeyRequest, key_id: int) -> Response:
        given = ApiKeyChange(data=request.data)
        given.is_valid(raise_exception=True)
        with entered(request) as caller:
            fields = given.validated_data
            key = change_found_key(
                caller,
                key_id,
                name=fields.get("name"),
                terms=lambda terms, organization: _terms(terms, fields, organization),
            )
            return Response(_single(key))

    def delete(self, request: KeyRequest, key_id: int) -> Response:
        with entered(request) as caller:
            revoke_key(acting=caller.acting, key=find_key(caller, key_id), reason="/v1/apikeys")
            return Response(status=status.HTTP_204_NO_CONTENT)


class ApiKeyGroups(ManagingView):
    """Groups of keys. There are none yet: the list is empty, and making one is refused."""

    def get(self, request: KeyRequest) -> Response:
        return Response({"object": "list", "data": [], "has_more": False, "next": None})

    def post(self, request: KeyRequest) -> Response:
        raise Invalid("name", "Groups of keys are not offered here; give each key its own limits.")


def _terms(terms: KeyTerms, given: dict[str, Any], organization: Organization) -> KeyTerms:
    """Raises Invalid for an expiry that is no time."""
    changes: dict[str, Any] = {name: given[name] for name in ("models", "scopes", "member") if name in given}
    if "budget" in given:
        changes["limits"] = {"budget": given["budget"]}
    if "expiry_date" in given:
        text = given["expiry_date"]
        try:
            changes["expires_at"] = None if text is None else _expiry(text, ZoneInfo(organization.time_zone))
        except (ValueError, OverflowError) as exc:
            raise Invalid("expiry_date", "An expiry date is a date or a time in ISO 8601.") from exc
    return changed_terms(terms, changes, organization)


def _expiry(text: str, zone: ZoneInfo) -> Any:
    """The moment at which a key expires: a date alone is good to its end in the organization's zone."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return parse_moment(text, zone)
    return parse_moment((day + timedelta(days=1)).isoformat(), zone)


def _single(key: Key) -> dict[str, Any]:
    return _row(key, spent_by_key([key]).get(key.pk, 0))


def _row(key: Key, spent_nano: int) -> dict[str, Any]:
    amount, moment = AmountField().to_representation, MomentField().to_representation
    return {
        "object": "apikey",
        "id": key.pk,
        "name": key.name,
        "prefix": key.prefix,
        "group_id": None,
        "member": key.member.user.email if key.member is not None else None,
        "models": key.allowed_models,
        "scopes": key.scopes,
        "budget": None if key.budget_nano is None else amount(key.budget_nano),
        "spent": amount(spent_nano),
        "currency": key.organization.currency,
        "daily_limit": None,
        "monthly_limit": None,
        "input_price_limit": None,
        "output_price_limit": None,
        "expiry_date": None if key.expires_at is None else moment(key.expires_at),
        "created_at": moment(key.created_at),
    }
