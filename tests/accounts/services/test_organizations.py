from types import SimpleNamespace

import pytest

from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.limits import Limits
from accounts.models import Organization
from accounts.permissions import SYSTEM, Acting
from accounts.services.organizations import (
    change_organization,
    create_organization,
    limits_of,
    set_organization_enabled,
)


def test_an_organization_is_made_by_an_operator(everything: None) -> None:
    made = create_organization(
        acting=SYSTEM, name="acme", title=" Acme ", currency="USD", limits=Limits(1, 2, 3)
    )
    made.refresh_from_db()
    assert (made.name, made.title, made.currency, made.enabled) == ("acme", "Acme", "USD", True)
    assert limits_of(made) == Limits(1, 2, 3)


def test_a_member_makes_no_organization(cast: SimpleNamespace) -> None:
    with pytest.raises(NotAllowed):
        create_organization(acting=Acting.of_member(cast.owner), name="mine", title="Mine")


def test_a_name_is_taken_once(acme: Organization) -> None:
    with pytest.raises(Conflict) as caught:
        create_organization(acting=SYSTEM, name="acme", title="Another")
    assert caught.value.field == "name"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "No Slug"}, "name"),
        ({"title": "  "}, "title"),
        ({"title": "a\x07b"}, "title"),
        ({"currency": "yuan"[:3]}, "currency"),
        ({"limits": Limits(rpm=0)}, "rpm"),
    ],
)
def test_what_cannot_be_is_refused(everything: None, given: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        create_organization(acting=SYSTEM, **{"name": "x", "title": "X", **given})
    assert caught.value.field == field


def test_its_owner_changes_title_and_limits_and_a_stranger_does_not(
    acme: Organization, cast: SimpleNamespace
) -> None:
    change_organization(
        acting=Acting.of_member(cast.owner), organization=acme, title="New", limits=Limits(budget_nano=5)
    )
    acme.refresh_from_db()
    assert (acme.title, limits_of(acme)) == ("New", Limits(budget_nano=5))
    for role in ("outsider", "employee", "finance"):
        with pytest.raises(NotAllowed):
            change_organization(
                acting=Acting.of_member(getattr(cast, role)), organization=acme, title="x", limits=Limits()
            )


def test_only_an_operator_switches_it_off(acme: Organization, cast: SimpleNamespace) -> None:
    with pytest.raises(NotAllowed):
        set_organization_enabled(acting=Acting.of_member(cast.owner), organization=acme, enabled=False)
    assert not set_organization_enabled(acting=SYSTEM, organization=acme, enabled=False).enabled
    assert set_organization_enabled(acting=SYSTEM, organization=acme, enabled=True).enabled
