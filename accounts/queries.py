"""Named reads of organizations, members and keys. Each is called inside a scope."""

from django.conf import settings
from django.db.models import QuerySet

from accounts.keys import fingerprints
from accounts.models import Key, Member, Organization, User
from accounts.permissions import Acting, Permission

__all__ = ["find_key", "keys_for", "live_keys", "members_of", "memberships_of"]


def memberships_of(user: User) -> QuerySet[Member]:
    """The person's places in organizations, by the organization's title. Takes the site scope."""
    return (
        Member.objects.filter(user=user).select_related("organization").order_by("organization__title", "pk")
    )


def members_of(organization: Organization) -> QuerySet[Member]:
    """The organization's members with their users, by address."""
    return Member.objects.filter(organization=organization).select_related("user").order_by("user__email")


def live_keys(organization: Organization) -> QuerySet[Key]:
    """Keys that were not revoked, newest first."""
    keys: QuerySet[Key] = Key.objects.filter(organization=organization, revoked_at=None)
    return keys.order_by("-created_at", "-pk")


def keys_for(acting: Acting, organization: Organization) -> QuerySet[Key]:
    """The organization's keys that they may see, revoked ones included, newest first: all, their own, or
    none.
    """
    keys: QuerySet[Key] = Key.objects.filter(organization=organization).order_by("-created_at", "-pk")
    if acting.may(Permission.SEE_KEYS, organization.pk):
        return keys
    if acting.may(Permission.SEE_OWN_KEYS, organization.pk) and acting.member_id is not None:
        return keys.filter(member_id=acting.member_id)
    return keys.none()


def find_key(value: str) -> Key | None:
    """The key with this clear text, under any pepper, revoked or not; None if there is none. Takes the site
    scope.
    """
    known = fingerprints(value.encode(), settings.KEY_PEPPERS)
    return Key.objects.filter(fingerprint__in=known).select_related("organization", "member__user").first()
