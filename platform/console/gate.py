"""The gate: who looks at which organization, and the scope that their page runs in.

A person reaches an organization as its member, an operator also from outside. Which one: `organization` in the
address (or in the form that was sent), else the one they looked at last, else their first. Anything that they have
no part in answers 404, as if it did not exist.

`organization_page` wraps every page of an organization: it finds the visitor, enters `accounts.scope.organization`
for the whole view, rendering included, and puts the organization's time zone in force.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from accounts import scope
from accounts.models import Member, Organization, User
from accounts.permissions import Acting, Permission
from accounts.queries import memberships_of

__all__ = ["SWITCHER_LENGTH", "PageRequest", "Sight", "Visitor", "find_visitor", "organization_page"]

_SESSION_NAME = "organization"
SWITCHER_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Sight:
    """What of the calls may be seen: of one organization or (None) all, of one member or (None) all."""

    organization_id: int | None
    member_id: int | None = None
    operator: bool = False


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person at one organization. `member` is None for an operator who comes from outside.

    `others` are the organizations that the switcher offers beside this one.
    """

    user: User
    organization: Organization
    member: Member | None
    acting: Acting
    others: tuple[Organization, ...] = ()

    @property
    def many(self) -> bool:
        """Whether there is an organization to choose."""
        return bool(self.others)

    @property
    def is_operator(self) -> bool:
        return self.acting.is_operator

    @property
    def sees_all_calls(self) -> bool:
        return self.may(Permission.SEE_CALLS)

    @property
    def sees_money(self) -> bool:
        return self.may(Permission.SEE_MONEY)

    @property
    def manages_keys(self) -> bool:
        return self.may(Permission.MANAGE_KEYS)

    @property
    def sight(self) -> Sight:
        own = None if self.sees_all_calls else self.acting.member_id
        return Sight(self.organization.pk, member_id=own, operator=self.is_operator)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.organization.time_zone)

    def may(self, permission: Permission) -> bool:
        return self.acting.may(permission, self.organization.pk)

    def url(self, name: str, *args: object, **query: object) -> str:
        """The address of a page; it names the organization where there is a choice."""
        asked = {key: value for key, value in query.items() if value not in (None, "")}
        if self.many:
            asked["organization"] = self.organization.name
        return reverse(name, args=args) + (f"?{urlencode(asked)}" if asked else "")


class PageRequest(HttpRequest):
    """What a page of an organization is given: a request whose visitor the gate has found."""

    user: User
    visitor: Visitor


def find_visitor(user: User, asked: str | None, last: str | None = None) -> Visitor | None:
    """The visitor at the organization `asked` for, else at the `last` one, else at their first.

    None if the person has no organization at all. Raises Http404 if they have no part in the one asked for.
    """
    with scope.site("gate"):
        memberships = list(memberships_of(user))
        organization = _named(user, memberships, asked)
        if organization is None and asked:
            raise Http404("no such organization")
        organization = organization or _named(user, memberships, last) or _first(user, memberships)
        return None if organization is None else _visitor(user, organization, memberships)


def _named(user: User, memberships: list[Member], name: str | None) -> Organization | None:
    for member in memberships:
        if member.organization.name == name:
            return member.organization
    return Organization.objects.filter(name=name).first() if name and user.is_operator else None


def _first(user: User, memberships: list[Member]) -> Organization | None:
    if memberships:
        return memberships[0].organization
    return Organization.objects.order_by("title", "pk").first() if user.is_operator else None


def _visitor(user: User, here: Organization, memberships: list[Member]) -> Visitor:
    member = next((row for row in memberships if row.organization_id == here.pk), None)
    if member is not None:
        member.user = user
    known = [row.organization for row in memberships]
    if user.is_operator and len(known) <= SWITCHER_LENGTH:
        more = Organization.objects.exclude(pk__in=[organization.pk for organization in known])
        known += more.order_by("title", "pk")[: SWITCHER_LENGTH + 1 - len(known)]
    others = [organization for organization in known if organization.pk != here.pk]
    acting = Acting.of_operator(user) if user.is_operator or member is None else Acting.of_member(member)
    return Visitor(user, here, member, acting, tuple(others[:SWITCHER_LENGTH]))


def organization_page(
    *, needs: str | None = None
) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Wrap a page of an organization. `needs` names a property of `Visitor` that must hold, else 403."""

    def wrap(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @login_required
        @wraps(view)
        def gated(plain_request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            request = cast(PageRequest, plain_request)
            asked = request.GET.get("organization") or request.POST.get("organization")
            visitor = find_visitor(request.user, asked, request.session.get(_SESSION_NAME))
            if visitor is None:
                return render(request, "console/no_organization.html", status=403)
            if needs is not None and not getattr(visitor, needs):
                raise PermissionDenied(needs)
            if request.session.get(_SESSION_NAME) != visitor.organization.name:
                request.session[_SESSION_NAME] = visitor.organization.name
            request.visitor = visitor
            with scope.organization(visitor.organization.pk), timezone.override(visitor.zone):
                return view(request, *args, **kwargs)

        return gated

    return wrap
