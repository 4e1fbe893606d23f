"""SQL text for row-level security, used by migrations.

Every table of an organization's data is FORCEd, so that the owner is bound too, and carries one policy per
role: `relay_owner` (migrations) sees all; `relay_app` sees the rows of `app.org`, or all while `app.site`
names a reason; `relay_ingest` sees what usage ingestion needs. A test compares the schema with this rule.
"""

__all__ = ["enable", "grant_ingest"]


def enable(table: str, *, column: str = "organization_id") -> str:
    """Pure. SQL that puts `table` under row-level security by `column`. Names are our own, never input."""
    seen = (
        f"({column} = NULLIF(current_setting('app.org', true), '')::bigint"
        f" OR COALESCE(current_setting('app.site', true), '') <> '')"
    )
    return f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY owner_all ON {table} TO relay_owner USING (true) WITH CHECK (true);
        CREATE POLICY app_scope ON {table} TO relay_app USING {seen} WITH CHECK {seen};
    """


def grant_ingest(table: str, *privileges: str) -> str:
    """Pure. SQL that gives `relay_ingest` these privileges on `table`, with a policy of its own where rows
    are guarded.
    """
    return f"""
        GRANT {", ".join(privileges)} ON {table} TO relay_ingest;
        CREATE POLICY ingest_all ON {table} TO relay_ingest USING (true) WITH CHECK (true);
    """
