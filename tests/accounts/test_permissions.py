from types import SimpleNamespace

import pytest

from accounts.errors import NotAllowed
from accounts.models import Key, Organization
from accounts.permissions import SYSTEM, Acting, Permission, require
from accounts.services.members import switch_off_member

OWN = {Permission.SEE_OWN_CALLS, Permission.SEE_OWN_KEYS}
MAY = {
    "owner": set(Permission) - {Permission.OPERATE},
    "admin": set(Permission) - {Permission.OPERATE, Permission.MANAGE_OWNERS},
    "finance": OWN | {Permission.SEE_MONEY, Permission.SEE_CALLS},
    "employee": OWN,
}


@pytest.mark.parametrize("role", MAY)
def test_a_role_may_do_what_the_table_says_and_only_at_home(
    cast: SimpleNamespace, acme, stranger, role: str
) -> None:
    acting = Acting.of_member(getattr(cast, role))
    assert {permission for permission in Permission if acting.may(permission, acme.pk)} == MAY[role]
    assert not any(acting.may(permission, stranger.pk) for permission in Permission)


def test_who_was_switched_off_may_do_nothing(cast: SimpleNamespace, acme: Organization) -> None:
    acting = Acting.of_member(switch_off_member(acting=SYSTEM, member=cast.admin))
    assert not any(acting.may(permission, acme.pk) for permission in Permission)


def test_an_operator_may_do_everything_everywhere(cast: SimpleNamespace, acme, stranger) -> None:
    user = cast.outsider.user
    with pytest.raises(NotAllowed):
        Acting.of_operator(user)
    user.is_operator = True
    acting = Acting.of_operator(user)
    assert all(acting.may(permission, place.pk) for permission in Permission for place in (acme, stranger))


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [(["call"], set()), (["manage"], MAY["admin"]), (["call", "operate"], set(Permission))],
)
def test_a_keys_scopes_say_what_its_program_may_do(
    acme, scopes: list[str], expected: set[Permission]
) -> None:
    acting = Acting.of_key(Key(organization=acme, prefix="sk-yz-x", scopes=scopes))
    assert {permission for permission in Permission if acting.may(permission, acme.pk)} == expected


def test_require_says_who_may_not_do_what(cast: SimpleNamespace, acme: Organization) -> None:
    with pytest.raises(NotAllowed, match=r"employee@acme\.example may not manage keys here"):
        require(Acting.of_member(cast.employee), Permission.MANAGE_KEYS, acme.pk)
    with pytest.raises(NotAllowed):
        require(Acting.of_member(cast.owner), Permission.OPERATE)
    require(SYSTEM, Permission.OPERATE)
