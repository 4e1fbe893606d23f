from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.db import IntegrityError, connection, transaction

from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.keys import fingerprint
from accounts.limits import Limits
from accounts.models import Key, Organization
from accounts.permissions import SYSTEM, Acting
from accounts.queries import find_key, keys_for, live_keys
from accounts.services.keys import (
    KeyTerms,
    NewKey,
    change_key,
    create_key,
    rename_key,
    restore_key,
    revoke_key,
    terms_of,
)

VALUE = "a-fixed-key-for-automation"


def make(organization: Organization, name: str = "ci", **terms: object) -> NewKey:
    return create_key(acting=SYSTEM, organization=organization, name=name, terms=KeyTerms(**terms))


def test_a_key_is_made_and_its_clear_text_is_kept_nowhere(acme: Organization, cast: SimpleNamespace) -> None:
    made = create_key(acting=Acting.of_member(cast.admin), organization=acme, name=" ci ", terms=KeyTerms())
    assert (made.key.name, made.key.scopes, made.key.allowed_models) == ("ci", ["call"], None)
    assert bytes(made.key.fingerprint) == fingerprint(made.clear.encode(), settings.KEY_PEPPERS[0])
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_to_json(k)::text FROM accounts_key k")
        assert made.clear[15:] not in cursor.fetchone()[0]
    assert made.clear not in repr(made)


@pytest.mark.parametrize("role", ["finance", "employee", "outsider"])
def test_who_may_not_manage_keys_makes_changes_and_revokes_none(
    acme, cast: SimpleNamespace, role: str
) -> None:
    acting = Acting.of_member(getattr(cast, role))
    key = make(acme).key
    for attempt in (
        lambda: create_key(acting=acting, organization=acme, name="x", terms=KeyTerms()),
        lambda: change_key(acting=acting, key=key, terms=KeyTerms()),
        lambda: rename_key(acting=acting, key=key, name="x"),
        lambda: revoke_key(acting=acting, key=key),
        lambda: restore_key(acting=acting, key=key),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    key.refresh_from_db()
    assert (key.name, key.revoked_at, Key.objects.count()) == ("ci", None, 1)


def test_only_an_operator_hands_out_the_scope_of_operators(acme: Organization, cast: SimpleNamespace) -> None:
    owner = Acting.of_member(cast.owner)
    with pytest.raises(NotAllowed):
        create_key(acting=owner, organization=acme, name="x", terms=KeyTerms(scopes=("call", "operate")))
    key = make(acme).key
    with pytest.raises(NotAllowed):
        change_key(acting=owner, key=key, terms=KeyTerms(scopes=("operate",)))
    assert make(acme, "site", scopes=("operate",)).key.scopes == ["operate"]


def test_a_key_of_operators_is_changed_and_revoked_by_operators_only(acme, cast: SimpleNamespace) -> None:
    key = make(acme, "site", scopes=("operate",)).key
    manager = Acting.of_key(make(acme, "manager", scopes=("manage",)).key)
    for acting in (manager, Acting.of_member(cast.owner)):
        for attempt in (
            lambda acting: change_key(
                acting=acting, key=key, terms=replace(terms_of(key), limits=Limits(rpm=1))
            ),
            lambda acting: change_key(acting=acting, key=key, terms=KeyTerms()),
            lambda acting: rename_key(acting=acting, key=key, name="x"),
            lambda acting: revoke_key(acting=acting, key=key),
        ):
            with pytest.raises(NotAllowed):
                attempt(acting)
    key.refresh_from_db()
    assert (key.name, key.scopes, key.rpm, key.revoked_at) == ("site", ["operate"], None, None)
    rename_key(acting=Acting.of_key(key), key=key, name="site-2")
    assert revoke_key(acting=SYSTEM, key=key).revoked_at is not None


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"scopes": ()}, "scopes"),
        ({"scopes": ("fly",)}, "scopes"),
        ({"limits": Limits(rpm=0)}, "rpm"),
        ({"limits": Limits(concurrency=-1)}, "concurrency"),
        ({"limits": Limits(budget_nano=-1)}, "budget"),
        ({"limits": Limits(budget_nano=2**63)}, "budget"),
        ({"allowed_models": ("",)}, "models"),
    ],
)
def test_terms_that_cannot_be_are_refused(acme: Organization, terms: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        make(acme, **terms)
    assert caught.value.field == field


def test_a_key_belongs_to_a_member_of_its_own_organization(acme: Organization, cast: SimpleNamespace) -> None:
    with pytest.raises(Invalid) as caught:
        make(acme, member=cast.outsider)
    assert caught.value.field == "member"
    key = make(acme, member=cast.employee).key
    with pytest.raises(IntegrityError, match="key_member_is_of_its_organization"), transaction.atomic():
        Key.objects.filter(pk=key.pk).update(member=cast.outsider)
        connection.check_constraints()


def test_a_live_name_and_a_value_are_taken_once(acme: Organization, stranger: Organization) -> None:
    make(acme)
    with pytest.raises(Conflict) as caught:
        make(acme)
    assert caught.value.field == "name"
    assert make(stranger).key.name == "ci"
    create_key(acting=SYSTEM, organization=acme, name="fixed", terms=KeyTerms(), value=VALUE)
    with pytest.raises(Conflict) as caught:
        create_key(acting=SYSTEM, organization=stranger, name="fixed", terms=KeyTerms(), value=VALUE)
    assert caught.value.field == "value"


def test_a_fixed_value_has_a_legal_form(acme: Organization) -> None:
    with pytest.raises(Invalid):
        create_key(acting=SYSTEM, organization=acme, name="x", terms=KeyTerms(), value="too short")


def test_the_terms_of_a_key_can_be_read_and_changed_one_by_one(
    acme: Organization, cast: SimpleNamespace
) -> None:
    terms = KeyTerms(
        member=cast.employee,
        allowed_models=("a", "b"),
        scopes=("call", "manage"),
        limits=Limits(5, 6, 7),
        expires_at=datetime(2030, 1, 1, tzinfo=UTC),
    )
    key = create_key(acting=SYSTEM, organization=acme, name="ci", terms=terms).key
    key.refresh_from_db()
    assert terms_of(key) == terms
    changed = replace(terms, limits=Limits(rpm=9))
    change_key(acting=Acting.of_member(cast.admin), key=key, terms=changed)
    key.refresh_from_db()
    assert terms_of(key) == changed


def test_a_key_is_revoked_once_and_for_good(acme: Organization, cast: SimpleNamespace) -> None:
    key = make(acme).key
    revoke_key(acting=Acting.of_member(cast.admin), key=key, reason="leaked")
    first = key.revoked_at
    revoke_key(acting=SYSTEM, key=key, reason="again")
    assert (key.revoked_at, key.revoked_reason) == (first, "leaked")
    assert make(acme).key.name == key.name


def test_a_key_comes_back_only_while_its_name_is_free(acme: Organization) -> None:
    key = revoke_key(acting=SYSTEM, key=make(acme).key)
    assert restore_key(acting=SYSTEM, key=key).revoked_at is None
    revoke_key(acting=SYSTEM, key=key)
    make(acme)
    with pytest.raises(Conflict):
        restore_key(acting=SYSTEM, key=key)


def test_a_name_is_changed_unless_a_live_key_has_it(acme: Organization) -> None:
    key = make(acme).key
    make(acme, "other")
    assert rename_key(acting=SYSTEM, key=key, name="build").name == "build"
    with pytest.raises(Conflict):
        rename_key(acting=SYSTEM, key=key, name="other")


def test_people_see_all_keys_their_own_or_none(acme: Organization, cast: SimpleNamespace) -> None:
    own, other = make(acme, "own", member=cast.employee).key, make(acme, "other").key
    seen = {role: list(keys_for(Acting.of_member(getattr(cast, role)), acme)) for role in vars(cast)}
    assert seen == {
        "owner": [other, own],
        "admin": [other, own],
        "finance": [],
        "employee": [own],
        "outsider": [],
    }


def test_a_key_is_found_by_its_clear_text_under_every_pepper(acme: Organization, settings) -> None:
    old = make(acme)
    settings.KEY_PEPPERS = (b"n" * 32, *settings.KEY_PEPPERS)
    new = make(acme, "new")
    assert find_key(old.clear) == old.key
    assert find_key(new.clear) == new.key
    assert find_key("nobody-has-this-key-at-all") is None
    assert list(live_keys(acme)) == [new.key, old.key]
