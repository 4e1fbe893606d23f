"""Members: people let into an organization, their roles, and their going."""

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from accounts.errors import Conflict, Invalid
from accounts.models import Member, Organization, Role, User
from accounts.permissions import SYSTEM, Acting, Permission, require

__all__ = ["add_member", "change_role", "switch_off_member"]


@transaction.atomic
def add_member(
    *, acting: Acting, organization: Organization, email: str, role: str, password: str | None = None
) -> Member:
    """Let a person in, or in again, with this role. Somebody unknown becomes a user.

    The password is set only for a user who has none yet: one organization cannot change another one's people.
    Without any, the person can sign in only after setting one. Raises Conflict if they are a member already,
    NotAllowed, or Invalid for values that cannot be.
    """
    _require(acting, organization.pk, role)
    user = _user(email, password)
    member, made = Member.with_disabled.get_or_create(
        organization=organization, user=user, defaults={"role": role}
    )
    if not made:
        if member.enabled:
            raise Conflict("email", f"{user.email} is a member already.")
        member.role, member.enabled = role, True
        member.save(update_fields=["role", "enabled"])
    return member


@transaction.atomic
def change_role(*, acting: Acting, member: Member, role: str) -> Member:
    """Give the member another role. Raises Conflict if the organization would be left without an owner."""
    _require(acting, member.organization_id, member.role, role)
    if role != Role.OWNER:
        _keep_an_owner(acting, member)
    member.role = role
    member.save(update_fields=["role"])
    return member


@transaction.atomic
def switch_off_member(*, acting: Acting, member: Member) -> Member:
    """Take the member's place away. Keys stay as they are. Idempotent.

    Raises NotAllowed, or Conflict if the organization would be left without an owner.
    """
    _require(acting, member.organization_id, member.role)
    _keep_an_owner(acting, member)
    Member.with_disabled.filter(pk=member.pk, enabled=True).update(enabled=False)
    member.enabled = False
    return member


def _require(acting: Acting, organization_id: int, *roles: str) -> None:
    """Members are the business of admins, owners that of owners."""
    require(acting, Permission.MANAGE_MEMBERS, organization_id)
    if not set(roles) <= set(Role.values):
        raise Invalid("role", f"A role is one of {', '.join(Role.values)}.")
    if Role.OWNER in roles:
        require(acting, Permission.MANAGE_OWNERS, organization_id)


def _user(email: str, password: str | None) -> User:
    email = email.strip().lower()
    try:
        validate_email(email)
    except ValidationError as exc:
        raise Invalid("email", f"{email} is no e-mail address.") from exc
    user = User.objects.filter(email=email).first()
    if user is None:
        return User.objects.create_user(email, password)
    if password is not None and not user.has_usable_password():
        user.set_password(password)
        user.save(update_fields=["password"])
    return user


def _keep_an_owner(acting: Acting, member: Member) -> None:
    """Owners are locked in one order: two who leave at once cannot both believe that the other one stays."""
    if acting is SYSTEM or member.role != Role.OWNER:
        return
    owners = Member.objects.filter(organization_id=member.organization_id, role=Role.OWNER).order_by("pk")
    if {owner.pk for owner in owners.select_for_update()} <= {member.pk}:
        raise Conflict("role", "An organization needs at least one owner.")
