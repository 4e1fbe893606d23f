"""The rule of the schema: whoever adds a table of an organization's data puts it behind the wall."""

import pytest
from django.db import DatabaseError, connection, transaction

pytestmark = pytest.mark.django_db

# In a partition of its own the parent's policies hold, and no role may go round the parent.
PARTITIONS = "SELECT inhrelid FROM pg_inherits WHERE inhparent = 'billing_usagerecord'::regclass"


def rows(query: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def guarded_tables() -> set[str]:
    found = rows(f"""
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE a.attname = 'organization_id' AND NOT a.attisdropped AND c.relkind IN ('r', 'p')
          AND c.relnamespace = 'public'::regnamespace AND c.oid NOT IN ({PARTITIONS})
    """)
    return {name for (name,) in found} | {"accounts_organization"}


def test_the_rule_looks_at_the_tables_it_is_made_for() -> None:
    assert guarded_tables() >= {
        "accounts_organization",
        "accounts_member",
        "accounts_key",
        "billing_usagerecord",
        "billing_posting",
        "billing_ledgerentry",
        "billing_spenttotal",
    }


def test_every_table_of_an_organization_has_forced_row_level_security() -> None:
    forced = rows("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity")
    assert guarded_tables() <= {name for (name,) in forced}


def test_every_such_table_has_a_policy_for_the_owner_and_one_for_the_application() -> None:
    policies = rows("SELECT tablename, roles::text[] FROM pg_policies")
    for table in guarded_tables():
        roles = {role for name, owners in policies if name == table for role in owners}
        assert {"relay_owner", "relay_app"} <= roles, table


def test_the_policies_of_the_application_read_the_scope() -> None:
    policies = rows("SELECT tablename, qual, with_check FROM pg_policies WHERE 'relay_app' = ANY(roles)")
    assert {table for table, _, _ in policies} == guarded_tables()
    for _, seen, written in policies:
        assert "app.org" in seen and "app.site" in seen and seen == written


def test_no_role_of_the_product_is_above_the_rules() -> None:
    roles = rows("SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname LIKE 'relay_%'")
    assert {name for name, _, _ in roles} >= {"relay_owner", "relay_app", "relay_ingest"}
    assert not [name for name, is_super, bypasses in roles if is_super or bypasses]
    assert rows("SELECT current_user") == [("relay_app",)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO billing_usagerecord (id) VALUES (gen_random_uuid())",
        "UPDATE billing_usagerecord SET amount_nano = 0",
        "DELETE FROM billing_usagerecord",
        "TRUNCATE billing_usagerecord",
        "UPDATE billing_ledgerentry SET amount_nano = 0",
        "DELETE FROM billing_ledgerentry",
        "UPDATE billing_posting SET kind = 'refund'",
        "DELETE FROM billing_posting",
        "INSERT INTO billing_spenttotal (organization_id, level, spent_nano, calls) VALUES (1, 'o', 0, 0)",
        "UPDATE billing_spenttotal SET spent_nano = 0",
        "DELETE FROM billing_spenttotal",
        "UPDATE billing_price SET input = 0",
        "DELETE FROM billing_price",
        "SELECT * FROM billing_usagerecord_default",
        "INSERT INTO billing_usagerecord_default (id) VALUES (gen_random_uuid())",
        "DROP TABLE billing_posting",
        "ALTER TABLE billing_usagerecord DISABLE ROW LEVEL SECURITY",
    ],
)
def test_the_application_may_not_touch_the_books(statement: str) -> None:
    with pytest.raises(DatabaseError, match=r"permission denied|must be owner"), transaction.atomic():
        rows(statement)


def test_the_application_may_not_read_any_partition_directly() -> None:
    names = rows(f"SELECT relname FROM pg_class WHERE oid IN ({PARTITIONS})")
    assert len(names) > 3
    for (name,) in names:
        assert not rows(
            f"SELECT has_table_privilege('relay_app', '{name}', 'SELECT, INSERT, UPDATE, DELETE')"
        )[0][0]


def test_ingestion_may_add_and_not_change() -> None:
    for table in ("billing_usagerecord", "billing_posting", "billing_ledgerentry"):
        allowed = rows(
            f"SELECT has_table_privilege('relay_ingest', '{table}', 'INSERT'),"
            f" has_table_privilege('relay_ingest', '{table}', 'UPDATE'),"
            f" has_table_privilege('relay_ingest', '{table}', 'DELETE')"
        )
        assert allowed == [(True, False, False)], table
    for table in ("accounts_organization", "accounts_key", "accounts_user", "relay_upstream"):
        assert not rows(f"SELECT has_table_privilege('relay_ingest', '{table}', 'SELECT, INSERT, UPDATE')")[
            0
        ][0]
