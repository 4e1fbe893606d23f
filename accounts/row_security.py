"""SQL text for row-level security, used by migrations.

Every table of an organization's data is FORCEd, so that the owner is bound too, and carries one policy per
role: `relay_owner` (migrations) sees all; `relay_app` sees the rows of `app.org`, or all while `app.site`
names a reason; `relay_ingest` sees what usage ingestion needs. A test compares the schema with this rule.
"""

__all__ = ["UNGUARDED", "enable", "grant_ingest"]

# Tables of an organization's data that miss any part of the wall: a start refuses to go on with one.
UNGUARDED = """
    SELECT c.relname FROM pg_class c
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND c.relnamespace = 'public'::regnamespace AND c.relowner = 'relay_owner'::regrole
      AND (c.relname = 'accounts_organization' OR EXISTS (
        SELECT 1 FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname = 'organization_id' AND NOT a.attisdropped))
      AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (
        SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND 'relay_app'::regrole = ANY(p.polroles)))
    ORDER BY c.relname
"""


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
