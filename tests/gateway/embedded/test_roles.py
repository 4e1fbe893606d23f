"""Roles on the oldest and the newest PostgreSQL of this machine: memberships changed with version 16."""

import contextlib
import shutil
from collections.abc import Iterator

import psycopg
import pytest

from gateway.embedded import LaunchError, Servers, running_servers
from gateway.embedded.binaries import find_postgres
from gateway.embedded.roles import (
    ROLES,
    DangerousRole,
    RolesMissing,
    ensure_roles,
    quote_identifier,
    refuse_dangerous_role,
    roles_sql,
)
from gateway.start.database import see_to_roles
from tests.gateway.processes import make_place

_OLDEST = 14
_LOGINS = ("maker", "plain", "boss", "seer", "heir", "o\"dd's")


def _versions() -> list[int]:
    found = []
    for major in range(_OLDEST, find_postgres().major + 1):
        with contextlib.suppress(LaunchError):
            found.append(find_postgres(major).major)
    return sorted({found[0], found[-1]})


@pytest.fixture(scope="module", params=_versions())
def servers(request) -> Iterator[Servers]:
    folder = make_place()
    with running_servers(folder, postgres_major=request.param) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture
def admin(servers) -> Iterator[psycopg.Connection]:
    """A superuser's connection to a new database "books", in a cluster that has none of the roles."""
    with psycopg.connect(servers.postgres.admin_url(), autocommit=True) as outside:
        outside.execute("DROP DATABASE IF EXISTS yizhan")
        for role in (*ROLES, *_LOGINS):
            outside.execute(f"DROP ROLE IF EXISTS {quote_identifier(role)}")
        outside.execute("CREATE DATABASE books")
        with psycopg.connect(servers.postgres.admin_url("books"), autocommit=True) as inside:
            yield inside
        outside.execute("DROP DATABASE books WITH (FORCE)")


def _url(admin, login, options, owns_database=False):
    """Make a login; its URL."""
    name = quote_identifier(login)
    admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pw' {options}")
    if owns_database:
        admin.execute(f"ALTER DATABASE books OWNER TO {name}")
        # As managed services do; before PostgreSQL 15 the schema belongs to a superuser otherwise.
        admin.execute(f"ALTER SCHEMA public OWNER TO {name}")
    return f"postgresql://{login}:pw@/books?host={admin.info.host}&port={admin.info.port}"


def _rights(admin):
    sql = "SELECT rolname, rolsuper, rolbypassrls, rolcanlogin, rolcreaterole, rolcreatedb FROM pg_roles"
    return {row[0]: row[1:] for row in admin.execute(f"{sql} WHERE rolname LIKE 'relay%'").fetchall()}


def test_a_login_with_createrole_makes_them_itself(admin):
    url = _url(admin, "maker", "CREATEROLE", owns_database=True)
    for _ in range(2):
        see_to_roles(url)
    assert _rights(admin) == dict.fromkeys(ROLES, (False,) * 5)
    with psycopg.connect(url, options="-c role=relay_owner") as owner:
        owner.execute("CREATE TABLE usage (id serial)")


def test_a_login_without_is_told_what_an_administrator_has_to_run(admin):
    url = _url(admin, "plain", "NOCREATEROLE")
    with pytest.raises(RolesMissing) as refusal:
        see_to_roles(url)
    assert "plain may not make them" in str(refusal.value)
    assert str(refusal.value).endswith("an administrator has to run this in the database books:")
    admin.execute(refusal.value.sql)
    admin.execute(refusal.value.sql)
    see_to_roles(url)


def test_the_application_works_with_the_owners_tables_and_ingest_has_nothing_yet(admin):
    url = _url(admin, "plain", "NOCREATEROLE")
    ensure_roles(admin, "plain")
    with psycopg.connect(url, options="-c role=relay_owner") as owner:
        owner.execute("CREATE TABLE usage (id serial, amount bigint)")
    with psycopg.connect(url, options="-c role=relay_app") as app:
        app.execute("INSERT INTO usage (amount) VALUES (1)")
        app.execute("UPDATE usage SET amount = 2")
        assert app.execute("SELECT amount FROM usage").fetchall() == [(2,)]
        app.execute("DELETE FROM usage")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("TRUNCATE usage")
    with (
        psycopg.connect(url, options="-c role=relay_ingest") as ingest,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        ingest.execute("SELECT * FROM usage")


@pytest.mark.parametrize("role", ["relay_app", "relay_ingest", "none"])
def test_only_the_owner_makes_tables(admin, role):
    url = _url(admin, "plain", "NOINHERIT")
    ensure_roles(admin, "plain")
    admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # the default since PostgreSQL 15
    with (
        psycopg.connect(url, options=f"-c role={role}") as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CREATE TABLE mine ()")


def test_a_connection_that_forgot_its_role_sees_nothing(admin):
    url = _url(admin, "plain", "NOINHERIT")
    ensure_roles(admin, "plain")
    with psycopg.connect(url, options="-c role=relay_owner") as owner:
        owner.execute("CREATE TABLE usage ()")
    with psycopg.connect(url) as nobody, pytest.raises(psycopg.errors.InsufficientPrivilege):
        nobody.execute("SELECT * FROM usage")


@pytest.mark.parametrize(
    ("login", "options", "why"),
    [("boss", "SUPERUSER", "is a superuser"), ("seer", "BYPASSRLS", "has BYPASSRLS")],
)
def test_a_login_that_sees_through_the_walls_is_refused(admin, login, options, why):
    with pytest.raises(DangerousRole, match=f"the login {login} {why}"):
        see_to_roles(_url(admin, login, options))


def test_a_login_that_can_become_such_a_role_is_refused(admin):
    _url(admin, "seer", "BYPASSRLS")
    url = _url(admin, "heir", "NOINHERIT")
    admin.execute("GRANT seer TO heir")
    with psycopg.connect(url) as connection, pytest.raises(DangerousRole, match="the role seer, which heir"):
        refuse_dangerous_role(connection)


def test_one_of_ours_that_was_made_dangerous_is_refused(admin):
    url = _url(admin, "plain", "NOINHERIT")
    admin.execute(roles_sql("plain"))
    admin.execute("ALTER ROLE relay_app BYPASSRLS")
    with pytest.raises(DangerousRole, match="relay_app"):
        see_to_roles(url)


def test_a_login_with_an_odd_name_is_quoted(admin):
    login = "o\"dd's"
    admin.execute(f"CREATE ROLE {quote_identifier(login)} LOGIN")
    ensure_roles(admin, login)
    sql = "SELECT pg_has_role(%s::name, 'relay_app', 'MEMBER')"
    assert admin.execute(sql, (login,)).fetchone() == (True,)
