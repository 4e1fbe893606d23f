"""Whose data a request to the control API may see, and the scope it runs in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast
from zoneinfo import ZoneInfo

from django.db.models import QuerySet
from django.http import Http404
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from accounts import scope
from accounts.models import Key, Organization, User
from accounts.permissions import Acting, Permission
from accounts.queries import keys_for
from console.api.authentication import KeyCaller
from console.gate import Sight, find_visitor

__all__ = ["ApiCaller", "entered"]

_UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Who asks, and at which organization; None is all of them, which only operators see."""

    acting: Acting
    organization: Organization | None

    @property
    def zone(self) -> ZoneInfo:
        """The zone of times without one: the organization's."""
        return ZoneInfo(self.organization.time_zone) if self.organization is not None else _UTC

    @property
    def sight(self) -> Sight:
        if self.organization is None:
            return Sight(None, operator=True)
        sees_all = self.acting.may(Permission.SEE_CALLS, self.organization.pk)
        own = None if sees_all else self.acting.member_id
        return Sight(self.organization.pk, member_id=own, operator=self.acting.is_operator)

    def keys(self) -> QuerySet[Key]:
        """The keys they may see."""
        if self.organization is None:
            return Key.objects.all()
        return keys_for(self.acting, self.organization)


@contextmanager
def entered(request: Request) -> Iterator[ApiCaller]:
    """Run the block in the caller's scope: their organization, or for an operator who names none the site.

    Raises Http404 for an organization that they have no part in.
    """
    caller = _caller(request, request.query_params.get("organization"))
    if caller.organization is None:
        with scope.site("control API"):
            yield caller
    else:
        with scope.organization(caller.organization.pk):
            yield caller


def _caller(request: Request, asked: str | None) -> ApiCaller:
    if isinstance(request.user, KeyCaller):
        return ApiCaller(request.user.acting, _organization_of_key(request.user, asked))
    user = cast(User, request.user)
    if user.is_operator and not asked:
        return ApiCaller(Acting.of_operator(user), None)
    visitor = find_visitor(user, asked, request.session.get("organization"))
    if visitor is None:
        raise PermissionDenied("You are not a member of an organization.")
    return ApiCaller(visitor.acting, visitor.organization)


def _organization_of_key(caller: KeyCaller, asked: str | None) -> Organization | None:
    if not caller.acting.is_operator:
        if asked and asked != caller.key.organization.name:
            raise Http404("no such organization")
        return caller.key.organization
    if not asked:
        return None
    with scope.site("control API"):
        organization = Organization.objects.filter(name=asked).first()
    if organization is None:
        raise Http404("no such organization")
    return organization
