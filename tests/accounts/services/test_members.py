from types import SimpleNamespace

import pytest

from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.models import Member, Organization, User
from accounts.permissions import SYSTEM, Acting
from accounts.queries import members_of, memberships_of
from accounts.services.members import add_member, change_role, switch_off_member


def test_somebody_new_becomes_a_user_and_a_member(acme: Organization, cast: SimpleNamespace) -> None:
    admin = Acting.of_member(cast.admin)
    member = add_member(
        acting=admin, organization=acme, email=" Ann@Acme.example ", role="employee", password="pw"
    )
    assert (member.user.email, member.role) == ("ann@acme.example", "employee")
    assert member.user.check_password("pw")
    assert member in members_of(acme)


def test_without_a_password_none_works(acme: Organization) -> None:
    member = add_member(acting=SYSTEM, organization=acme, email="ann@acme.example", role="owner")
    assert not member.user.has_usable_password()


def test_one_organization_cannot_set_the_password_of_anothers_people(acme, stranger) -> None:
    add_member(acting=SYSTEM, organization=acme, email="ann@acme.example", role="owner", password="hers")
    add_member(acting=SYSTEM, organization=stranger, email="ann@acme.example", role="owner", password="ours")
    ann = User.objects.get(email="ann@acme.example")
    assert ann.check_password("hers")
    assert [member.organization.name for member in memberships_of(ann)] == ["acme", "stranger"]


@pytest.mark.parametrize(
    ("email", "role", "field"), [("not an address", "owner", "email"), ("a@b.example", "king", "role")]
)
def test_what_cannot_be_is_refused(acme: Organization, email: str, role: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        add_member(acting=SYSTEM, organization=acme, email=email, role=role)
    assert caught.value.field == field


def test_a_member_twice_is_a_conflict(acme: Organization, cast: SimpleNamespace) -> None:
    with pytest.raises(Conflict):
        add_member(acting=SYSTEM, organization=acme, email=cast.admin.user.email, role="owner")


@pytest.mark.parametrize("role", ["finance", "employee", "outsider"])
def test_who_may_not_manage_members_changes_none(
    acme: Organization, cast: SimpleNamespace, role: str
) -> None:
    acting = Acting.of_member(getattr(cast, role))
    for attempt in (
        lambda: add_member(acting=acting, organization=acme, email="x@y.example", role="employee"),
        lambda: change_role(acting=acting, member=cast.employee, role="admin"),
        lambda: switch_off_member(acting=acting, member=cast.admin),
    ):
        with pytest.raises(NotAllowed):
            attempt()


def test_an_admin_makes_and_removes_no_owner(acme: Organization, cast: SimpleNamespace) -> None:
    admin = Acting.of_member(cast.admin)
    for attempt in (
        lambda: add_member(acting=admin, organization=acme, email="x@y.example", role="owner"),
        lambda: change_role(acting=admin, member=cast.admin, role="owner"),
        lambda: change_role(acting=admin, member=cast.owner, role="employee"),
        lambda: switch_off_member(acting=admin, member=cast.owner),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert change_role(acting=admin, member=cast.employee, role="finance").role == "finance"


def test_the_last_owner_stays_until_there_is_another(acme: Organization, cast: SimpleNamespace) -> None:
    owner = Acting.of_member(cast.owner)
    with pytest.raises(Conflict):
        switch_off_member(acting=owner, member=cast.owner)
    with pytest.raises(Conflict):
        change_role(acting=owner, member=cast.owner, role="admin")
    change_role(acting=owner, member=cast.admin, role="owner")
    assert not switch_off_member(acting=owner, member=cast.owner).enabled


def test_who_was_switched_off_is_seen_nowhere_and_may_come_back(acme, cast: SimpleNamespace) -> None:
    switch_off_member(acting=SYSTEM, member=cast.employee)
    assert cast.employee not in members_of(acme)
    assert not memberships_of(cast.employee.user)
    again = add_member(acting=SYSTEM, organization=acme, email=cast.employee.user.email, role="finance")
    assert (again.pk, again.role) == (cast.employee.pk, "finance")
    assert Member.objects.filter(pk=again.pk).exists()
