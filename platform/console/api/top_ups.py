"""`/api/v1/organizations/{name}/top_ups/`: money received, booked by operators."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import scope
from accounts.errors import Conflict, Invalid
from accounts.models import Organization
from accounts.permissions import Acting, Permission, require
from billing.top_ups import NOTE_LENGTH, TopUp, book_top_up
from console.amounts import decimal_string
from console.api.authentication import KeyCaller, MayUseControlApi
from console.api.fields import BodySerializer, MomentField
from console.api.problems import refusals

__all__ = ["TopUps"]

_KEY = "Idempotency-Key"


class NewTopUpSerializer(BodySerializer):
    """The currency is the wallet's: a check against slips."""

    amount = serializers.CharField(max_length=60, help_text='A decimal string such as "100.00".')
    currency = serializers.CharField(max_length=3)
    note = serializers.CharField(required=False, allow_blank=True, max_length=NOTE_LENGTH)

    def to_internal_value(self, data: Any) -> Any:
        """Amounts are decimal strings; a number of JSON would be a float to somebody."""
        if isinstance(data, dict) and "amount" in data and not isinstance(data["amount"], str):
            raise serializers.ValidationError({"amount": ['An amount is a decimal string such as "100.00".']})
        return super().to_internal_value(data)


class TopUpSerializer(serializers.Serializer):
    """A booked top-up. `balance` is the wallet's after it, holds not taken off."""

    id = serializers.IntegerField(help_text="Of its posting in the ledger.")
    organization = serializers.CharField()
    kind = serializers.CharField()
    amount = serializers.CharField()
    currency = serializers.CharField()
    note = serializers.CharField(allow_blank=True)
    balance = serializers.CharField()
    created_at = MomentField()


class TopUps(APIView):
    """Top-ups of one organization."""

    permission_classes = [MayUseControlApi]

    @extend_schema(
        operation_id="top_ups_create",
        parameters=[
            OpenApiParameter(
                _KEY,
                str,
                OpenApiParameter.HEADER,
                required=True,
                description="Makes it happen once: sent again, the first booking is returned with 200.",
            )
        ],
        request=NewTopUpSerializer,
        responses={201: TopUpSerializer, 200: TopUpSerializer, **refusals(400, 404, 409, 415)},
    )
    def post(self, request: Request, name: str) -> Response:
        """Book money received into the wallet. Operators only; calls have it within a second."""
        user: Any = request.user
        acting = user.acting if isinstance(user, KeyCaller) else Acting.of_operator(user)
        require(acting, Permission.OPERATE)
        given = NewTopUpSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        key = request.headers.get(_KEY, "").strip()
        if not key:
            raise Invalid(_KEY, "Say which booking this is, so that it happens once: any text of your own.")
        with scope.site("top-up by control API"):
            organization = Organization.objects.filter(name=name).first()
            if organization is None:
                raise Http404("no such organization")
            fields = given.validated_data
            try:
                booked = book_top_up(
                    acting=acting,
                    organization=organization,
                    amount=fields["amount"],
                    currency=fields["currency"],
                    key=key,
                    note=fields.get("note", ""),
                )
            except Conflict as exc:
                raise Conflict(_KEY, str(exc)) from exc
            return Response(
                _shown(organization, booked), status.HTTP_201_CREATED if booked.is_new else status.HTTP_200_OK
            )


def _shown(organization: Organization, booked: TopUp) -> dict[str, Any]:
    posting = booked.posting
    return {
        "id": posting.pk,
        "organization": organization.name,
        "kind": posting.kind,
        "amount": decimal_string(booked.amount_nano),
        "currency": booked.currency,
        "note": posting.memo,
        "balance": decimal_string(booked.balance_nano),
        "created_at": MomentField().to_representation(posting.created_at),
    }
