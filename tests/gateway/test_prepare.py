"""`manage.py prepare` against real databases: the first time it makes everything, later it asks and goes."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.signals import post_migrate
from django.test.utils import CaptureQueriesContext

from gateway.embedded.roles import ensure_roles

ROOT = Path(__file__).resolve().parents[2]
# Two look-ups of the recorded migrations, one for each month of `partitions.keep`, the walls, and seed's few.
MOST_QUERIES = 25


@pytest.fixture
def empty_database(servers: dict[str, str]) -> Iterator[str]:
    """The address of a database with nothing but the roles in it."""
    name = f"prepare_{os.getpid()}"
    with psycopg.connect(servers["admin"], autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    with psycopg.connect(servers["admin"].replace("/postgres?", f"/{name}?")) as admin:
        ensure_roles(admin, "yizhan")
        admin.execute(f"ALTER DATABASE {name} OWNER TO relay_owner".encode())
    yield servers["login"].replace("/yizhan?", f"/{name}?")
    with psycopg.connect(servers["admin"], autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def prepare(database_url: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "prepare", *options],
        env={**os.environ, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_an_empty_database_is_made_whole_once(empty_database: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("organizations:\n  - {name: acme, title: Acme}\n")
    first = prepare(empty_database, "--config", str(tmp_path / "own.yaml"))
    assert first.returncode == 0, first.stderr
    assert "Applying accounts.0001_initial" in first.stderr
    assert "Applying" not in first.stdout
    assert [line.split(" ")[0] for line in first.stdout.splitlines()[:2]] == ["console:", "key:"]
    assert "acme" in first.stdout
    second = prepare(empty_database)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


def test_a_migration_that_fails_is_named_and_nothing_else_is_done(empty_database: str) -> None:
    with psycopg.connect(empty_database, options="-c role=relay_owner") as owner:
        owner.execute("CREATE TABLE accounts_organization (id integer)")
    done = prepare(empty_database)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "migrate failed:" in done.stderr
    assert 'relation "accounts_organization" already exists' in done.stderr


def test_a_file_that_is_refused_is_named(empty_database: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("organisations: []\n")
    done = prepare(empty_database, "--config", str(tmp_path / "bad.yaml"))
    assert done.returncode == 1
    assert f"apply {tmp_path}/bad.yaml failed:" in done.stderr
    assert "organisations" in done.stderr
    # What was made before it is told all the same: it is not told a second time.
    assert done.stdout.startswith("console: ")


@pytest.mark.django_db
def test_a_second_time_is_a_few_questions_and_no_migration_work() -> None:
    call_command("prepare", stdout=io.StringIO())
    emitted: list[object] = []

    def hear(sender: object, **_: object) -> None:
        emitted.append(sender)

    post_migrate.connect(hear)
    said = io.StringIO()
    try:
        with CaptureQueriesContext(connection) as queries:
            call_command("prepare", stdout=said)
    finally:
        post_migrate.disconnect(hear)
    assert emitted == []
    assert said.getvalue() == ""
    asked = [query["sql"] for query in queries]
    assert len(asked) <= MOST_QUERIES, asked
    for statement in asked:
        assert statement.startswith(("SELECT", "SET ", "SAVEPOINT", "RELEASE", "BEGIN", "COMMIT")) or (
            "pg_catalog" in statement or "pg_class" in statement
        ), statement


@pytest.mark.django_db
@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE billing_usagerecord DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE accounts_key NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY app_scope ON accounts_organization",
    ],
)
def test_a_wall_that_is_missing_stops_the_start(damage: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE relay_owner")
        cursor.execute(damage)
        cursor.execute("SET LOCAL ROLE relay_app")
    with pytest.raises(
        CommandError, match=f"not in force on {damage.split()[2 if 'ALTER' in damage else 4]}:"
    ):
        call_command("prepare", stdout=io.StringIO(), stderr=io.StringIO())
