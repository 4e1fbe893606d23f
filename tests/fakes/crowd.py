"""Very many keys in very many organizations, written past the change log: what a large site's database looks like.

Key `number` of the crowd has the fingerprint `crowd_fingerprint(number)`. Every fourth key has limits, every fifth
may call two models only, every tenth expires in a year.
"""

import hashlib
from typing import Any

import psycopg
from psycopg import sql

from gateway.database import conninfo

__all__ = ["ORGANIZATIONS", "crowd_fingerprint", "fill_with_crowd"]

ORGANIZATIONS = 2_000
_TABLES = ("accounts_organization", "accounts_key")
_OF_TYPE = {"character varying": "''", "text": "''", "boolean": "false", "ARRAY": "'{}'", "jsonb": "'{}'"}


def crowd_fingerprint(number: int) -> bytes:
    return hashlib.sha256(b"crowd-key-%d" % number).digest()


def fill_with_crowd(url: str, keys: int, *, organizations: int = ORGANIZATIONS) -> None:
    """Write so many keys, numbered from 1, into the database at this address."""
    with psycopg.connect(**conninfo(url, role="relay_owner")) as owner:
        for table in _TABLES:
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER note_change".encode())
        _insert(
            owner,
            "accounts_organization",
            organizations,
            name="'crowd-' || n",
            title="'Organization ' || n",
            currency="'USD'",
            time_zone="'UTC'",
            enabled="true",
            created_at="now()",
            rpm="CASE WHEN mod(n, 2) = 0 THEN 6000 END",
        )
        _insert(
            owner,
            "accounts_key",
            keys,
            organization_id=f"(SELECT min(id) FROM accounts_organization WHERE name LIKE 'crowd-%%') + mod(n, {organizations})",
            name="'production-' || n",
            prefix="'sk-yz-crowd'",
            fingerprint="sha256(convert_to('crowd-key-' || n, 'UTF8'))",
            allowed_models="CASE WHEN mod(n, 5) = 0 THEN ARRAY['model-a', 'model-' || mod(n, 7)] END",
            scopes="ARRAY['call']",
            created_at="now()",
            expires_at="CASE WHEN mod(n, 10) = 0 THEN now() + interval '1 year' END",
            budget_nano="CASE WHEN mod(n, 4) = 0 THEN 1000000000::bigint * n END",
            rpm="CASE WHEN mod(n, 4) = 0 THEN 600 END",
            revoked_reason="''",
        )
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in _TABLES:
            owner.execute(f"ALTER TABLE {table} ENABLE TRIGGER note_change".encode())
    with psycopg.connect(**conninfo(url, role="relay_owner"), autocommit=True) as owner:
        owner.execute("ANALYZE accounts_key, accounts_organization")


def _insert(owner: psycopg.Connection[Any], table: str, count: int, **columns: str) -> None:
    """Insert rows whose columns are expressions of their number `n`; others that must not be null get a plain value."""
    needed = owner.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s"
        " AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'",
        [table],
    ).fetchall()
    values = {name: _OF_TYPE.get(kind, "0") for name, kind in needed} | columns
    query = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM generate_series(1, %s) AS n").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, values)),
        sql.SQL(", ").join(map(sql.SQL, values.values())),  # type: ignore[arg-type]  # written above, not given
    )
    owner.execute(query, [count])
