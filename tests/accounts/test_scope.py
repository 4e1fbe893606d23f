"""The two walls: managers that refuse, and row-level security behind them."""

import pytest
from django.db import DatabaseError, connection, transaction

from accounts import scope
from accounts.models import Key, Member, Organization
from accounts.permissions import SYSTEM
from accounts.services.keys import KeyTerms, create_key
from billing.models import LedgerEntry, Posting, SpentTotal, UsageRecord

TABLES = ("accounts_organization", "accounts_member", "accounts_key")


def count(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return cursor.fetchone()[0]


@pytest.fixture
def two_with_keys(acme: Organization, cast, stranger: Organization) -> tuple[int, int]:
    for organization in (acme, stranger):
        create_key(acting=SYSTEM, organization=organization, name="k", terms=KeyTerms())
    return acme.pk, stranger.pk


@pytest.fixture
def outside(two_with_keys: tuple[int, int]):
    """Takes the scope of the fixtures away for the block, as if no one had entered any."""
    token = scope._current.set(None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.org', '', true), set_config('app.site', '', true)")
    yield two_with_keys
    scope._current.reset(token)


@pytest.mark.parametrize("model", [Organization, Member, Key, Posting, LedgerEntry, SpentTotal, UsageRecord])
def test_a_manager_refuses_a_query_outside_a_scope(outside, model) -> None:
    with pytest.raises(scope.UnscopedQuery, match=model.__name__):
        model.objects.all()


@pytest.mark.parametrize("table", TABLES)
def test_without_a_scope_raw_sql_sees_no_row(outside, table: str) -> None:
    assert count(table) == 0


@pytest.mark.parametrize("table", TABLES)
def test_with_a_scope_raw_sql_sees_the_rows_of_one_organization(outside, table: str) -> None:
    ours, theirs = outside
    with scope.organization(ours):
        seen = count(table)
    with scope.organization(theirs):
        others = count(table)
    with scope.site("test"):
        assert count(table) == seen + others
    assert seen > 0 and others > 0


def test_a_write_for_another_organization_is_refused_by_the_database(outside) -> None:
    ours, theirs = outside
    with scope.organization(ours):
        for statement, arguments in (
            ("UPDATE accounts_key SET organization_id = %s", [theirs]),
            (
                "INSERT INTO accounts_key (organization_id, name, prefix, fingerprint, scopes, created_at,"
                " revoked_reason) VALUES (%s, 'x', 'x', 'x', '{}', now(), '')",
                [theirs],
            ),
        ):
            refused = pytest.raises(DatabaseError, match="row-level security")
            with refused, transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement, arguments)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM accounts_key WHERE organization_id = %s", [theirs])
            assert cursor.rowcount == 0


def test_a_scope_ends_with_its_block(outside) -> None:
    ours, _ = outside
    with scope.organization(ours):
        assert scope.current() == ("organization", str(ours))
    assert scope.current() is None


def test_a_scope_may_not_be_widened(outside) -> None:
    ours, theirs = outside
    with scope.organization(ours):
        with scope.organization(ours):
            pass
        for entering in (scope.site("more"), scope.organization(theirs)):
            with pytest.raises(scope.ScopeError), entering:
                pass
    with scope.site("sign-in"), scope.organization(theirs):
        assert count("accounts_organization") == 1


def test_the_outer_scope_is_back_after_an_inner_one(outside) -> None:
    ours, _ = outside
    with scope.site("outer"):
        everything = count("accounts_organization")
        with scope.organization(ours):
            assert count("accounts_organization") == 1
        assert count("accounts_organization") == everything > 1


def test_a_site_scope_names_its_reason(db: None) -> None:
    with pytest.raises(scope.ScopeError), scope.site(""):
        pass
