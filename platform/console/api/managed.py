"""`/v1/usage` and `/v1/balance`: what is spent and what is left, small and cheap to poll (status lines do)."""

from typing import Any

from django.db import connection
from django.utils.translation import gettext as _
from rest_framework import exceptions, status
from rest_framework.response import Response

from accounts import scope
from accounts.models import Key
from accounts.permissions import Permission, require
from billing.balances import balances
from billing.models import SpentTotal
from console.amounts import decimal_string
from console.api.fields import MomentField
from console.api.managed_base import KeyRequest, ManagedView, ManagingView
from console.money import held

__all__ = ["Balance", "Usage"]


class StoreAway(exceptions.APIException):
    """The limit store does not say what is held."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"


class Usage(ManagedView):
    """What the key itself has spent, and what its own budget leaves."""

    def get(self, request: KeyRequest) -> Response:
        key = request.auth
        with scope.organization(key.organization_id):
            total = SpentTotal.objects.filter(organization_id=key.organization_id, level=f"k{key.pk}").first()
        use = held.use_of(key.organization_id, f"k{key.pk}")
        spent = max(use.spent_nano if use else 0, total.spent_nano if total else 0)
        return Response(_usage(key, spent, use.held_nano if use else 0))


class Balance(ManagingView):
    """The wallet of the key's organization."""

    def get(self, request: KeyRequest) -> Response:
        key = request.auth
        organization = key.organization
        require(request.user.acting, Permission.SEE_MONEY, organization.pk)
        use = held.use_of(organization.pk, held.ORGANIZATION)
        if use is None:
            raise StoreAway(_("What is held for running calls cannot be read at the moment."))
        with scope.organization(organization.pk), connection.cursor() as cursor:
            balance = balances(cursor, [organization.pk])[organization.pk]
        return Response(
            {
                "object": "balance",
                "currency": organization.currency,
                "balance": decimal_string(balance),
                "held": decimal_string(use.held_nano),
                "available": decimal_string(balance - use.held_nano),
            }
        )


def _usage(key: Key, spent: int, held_nano: int) -> dict[str, Any]:
    budget = key.budget_nano
    return {
        "object": "usage",
        "name": key.name,
        "prefix": key.prefix,
        "currency": key.organization.currency,
        "spent": decimal_string(spent),
        "held": decimal_string(held_nano),
        "budget": None if budget is None else decimal_string(budget),
        "left": None if budget is None else decimal_string(max(budget - spent - held_nano, 0)),
        "rpm": key.rpm,
        "concurrency": key.concurrency,
        "expires_at": None if key.expires_at is None else MomentField().to_representation(key.expires_at),
    }
