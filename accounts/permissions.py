"""Who may do what: one table of roles, and the value that says who acts.

Services take an `Acting` and call `require`. It is made once, where somebody is recognised: from a member (a
person in the console), an operator, a key (the control API) or as `SYSTEM` (a command on the machine itself).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from accounts.errors import NotAllowed
from accounts.models import Key, Member, Role, Scope, User

__all__ = ["OF_ROLE", "SYSTEM", "Acting", "Permission", "require"]


class Permission(StrEnum):
    SEE_OWN_CALLS = "see own calls"
    SEE_CALLS = "see all calls"
    SEE_OWN_KEYS = "see own keys"
    SEE_KEYS = "see all keys"
    MANAGE_KEYS = "manage keys"
    MANAGE_MEMBERS = "manage members"
    MANAGE_OWNERS = "make or remove owners"
    MANAGE_ORGANIZATION = "manage the organization"
    SEE_MONEY = "see money"
    OPERATE = "operate the site"


_OWN = frozenset({Permission.SEE_OWN_CALLS, Permission.SEE_OWN_KEYS})
_ALL_OF_AN_ORGANIZATION = frozenset(Permission) - {Permission.OPERATE}

OF_ROLE: Mapping[str, frozenset[Permission]] = {
    Role.OWNER: _ALL_OF_AN_ORGANIZATION,
    Role.ADMIN: _ALL_OF_AN_ORGANIZATION - {Permission.MANAGE_OWNERS},
    Role.FINANCE: _OWN | {Permission.SEE_MONEY, Permission.SEE_CALLS},
    Role.EMPLOYEE: _OWN,
}


@dataclass(frozen=True, slots=True)
class Acting:
    """Who acts, and what they may do: in one organization, or with OPERATE in all of them."""

    name: str
    permissions: frozenset[Permission]
    organization_id: int | None = None
    member_id: int | None = None

    @classmethod
    def of_member(cls, member: Member) -> Self:
        """A person as a member of their organization. A member who was switched off may do nothing."""
        permissions = OF_ROLE[member.role] if member.enabled else frozenset[Permission]()
        return cls(member.user.email, permissions, member.organization_id, member.pk)

    @classmethod
    def of_operator(cls, user: User) -> Self:
        """A person who runs the site. Raises NotAllowed for anybody else."""
        if not (user.is_operator and user.is_active):
            raise NotAllowed("Only operators of the site may do this.")
        return cls(user.email, frozenset(Permission))

    @classmethod
    def of_key(cls, key: Key) -> Self:
        """A program with a key: `operate` acts as an operator, `manage` as an admin of its organization."""
        if Scope.OPERATE in key.scopes:
            return cls(f"key {key.prefix}", frozenset(Permission))
        permissions = OF_ROLE[Role.ADMIN] if Scope.MANAGE in key.scopes else frozenset[Permission]()
        return cls(f"key {key.prefix}", permissions, key.organization_id, key.member_id)

    @property
    def is_operator(self) -> bool:
        return Permission.OPERATE in self.permissions

    def may(self, permission: Permission, organization_id: int) -> bool:
        """Whether they may do this in that organization."""
        return self.is_operator or (
            permission in self.permissions and self.organization_id == organization_id
        )


SYSTEM = Acting("the system", frozenset(Permission))


def require(acting: Acting, permission: Permission, organization_id: int | None = None) -> None:
    """Raise NotAllowed unless they may do this; without an organization it takes an operator."""
    allowed = acting.is_operator if organization_id is None else acting.may(permission, organization_id)
    if not allowed:
        raise NotAllowed(f"{acting.name} may not {permission} here.")
