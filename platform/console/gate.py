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
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from accounts import scope
from accounts.models import Member, Organization, Role, User

__all__ = ["SWITCHER_LENGTH", "Sight", "Visitor", "find_visitor", "organization_page"]

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

    `others` are the organizations that the switcher offers, `many` says that there is more than one to choose from.
    """

    user: User
    organization: Organization
    member: Member | None
    others: tuple[Organization, ...] = ()

    @property
    def many(self) -> bool:
        return bool(self.others)

    @property
    def is_operator(self) -> bool:
        return self.user.is_operator

    @property
    def sees_all_calls(self) -> bool:
        return self.is_operator or self._has_role(Role.OWNER, Role.ADMIN, Role.FINANCE)

    @property
    def sees_money(self) -> bool:
        return self.is_operator or self._has_role(Role.OWNER, Role.ADMIN, Role.FINANCE)

    @property
    def manages_keys(self) -> bool:
        return self.is_operator or self._has_role(Role.OWNER, Role.ADMIN)

    @property
    def sight(self) -> Sight:
        own = None if self.sees_all_calls or self.member is None else self.member.pk
        return Sight(self.organization.pk, member_id=own, operator=self.is_operator)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.organization.time_zone)

    def url(self, name: str, *args: object, **query: object) -> str:
        """The address of a page; it names the organization where there is a choice."""
        asked = {key: value for key, value in query.items() if value not in (None, "")}
        if self.many:
            asked["organization"] = self.organization.name
        return reverse(name, args=args) + (f"?{urlencode(asked)}" if asked else "")

    def _has_role(self, *roles: str) -> bool:
        return self.member is not None and self.member.role in roles


def find_visitor(user: User, asked: str | None, last: str | None = None) -> Visitor | None:
    """The visitor at the organization `asked` for, else at the `last` one, else at their first.

    None if the person has no organization at all. Raises Http404 if they have no part in the one asked for.
    """
    with scope.site("gate"):
        memberships = list(
            Member.objects.filter(user=user).select_related("organization").order_by("organization__title", "pk")
        )
        by_name = {member.organization.name: member for member in memberships}
        for name in (asked, last):
            if name and name in by_name:
                return _visitor(user, by_name[name].organization, by_name[name], memberships)
            if name and user.is_operator:
                organization = Organization.objects.filter(name=name).first()
                if organization is not None:
                    return _visitor(user, organization, None, memberships)
            if name and name is asked:
                raise Http404("no such organization")
        if memberships:
            return _visitor(user, memberships[0].organization, memberships[0], memberships)
        if user.is_operator:
            organization = Organization.objects.order_by("title", "pk").first()
            if organization is not None:
                return _visitor(user, organization, None, memberships)
    return None


def _visitor(user: User, here: Organization, member: Member | None, memberships: list[Member]) -> Visitor:
    known = [row.organization for row in memberships]
    if user.is_operator and len(known) < SWITCHER_LENGTH:
        taken = [organization.pk for organization in known]
        more = Organization.objects.exclude(pk__in=taken).order_by("title", "pk")
        known += more[: SWITCHER_LENGTH - len(known)]
    others = [organization for organization in known if organization.pk != here.pk]
    return Visitor(user=user, organization=here, member=member, others=tuple(others[:SWITCHER_LENGTH]))


def organization_page(
    *, needs: str | None = None
) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Wrap a page of an organization. `needs` names a property of `Visitor` that must hold, else 403."""

    def wrap(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @login_required
        @wraps(view)
        def gated(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
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
