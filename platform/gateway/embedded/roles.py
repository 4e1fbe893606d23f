"""The database's roles: who owns the tables, who works with them, who inserts usage.

    login of DATABASE_URL      signs in and can do nothing but SET ROLE
      relay_owner              owns the tables, runs migrations
      relay_app                the application, bound by row-level security
      relay_ingest             inserts usage and ledger rows; migrations grant it what it needs

None of them is a superuser and none has BYPASSRLS: both would pass silently through the walls between
organizations. The login inherits nothing, so a connection that forgot SET ROLE sees nothing.

`ensure_roles` makes them where the login may (CREATEROLE). Where it may not, an administrator runs the SQL of
`roles_sql` once. Both may be done any number of times.
"""

import psycopg

__all__ = [
    "ROLES",
    "DangerousRole",
    "RolesError",
    "RolesMissing",
    "ensure_roles",
    "login_sql",
    "quote_identifier",
    "quote_literal",
    "refuse_dangerous_role",
    "roles_sql",
]

ROLES = ("relay_owner", "relay_app", "relay_ingest")

# One starter at a time: roles belong to the whole cluster, and two that make them at once would both fail.
_LOCK = 0x79697A68616E


class RolesError(Exception):
    """The roles of the database cannot be used. The text is for a person.

    RolesError
      +-- RolesMissing    an administrator has to run `sql` first
      +-- DangerousRole   a role passes through row-level security
    """


class RolesMissing(RolesError):
    """The login may not make the roles; ``sql`` does."""

    def __init__(self, text: str, sql: str) -> None:
        super().__init__(text)
        self.sql = sql


class DangerousRole(RolesError):
    """A role is a superuser or has BYPASSRLS."""


def quote_identifier(name: str) -> str:
    """Pure. A name as SQL.

    >>> quote_identifier('we"ird')
    '"we""ird"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    r"""Pure. A text as SQL, for a server with standard_conforming_strings or without.

    >>> print(quote_literal("it's"), quote_literal("a\\b"))
    'it''s' E'a\\b'
    """
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def login_sql(login: str, verifier: str) -> str:
    """Pure. SQL for a superuser that makes the login of an embedded server, or gives it this password.

    ``verifier`` is the SCRAM verifier of the password, never the password: statements may be logged.
    """
    rights = "LOGIN NOINHERIT NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION"
    return "\n".join(
        [
            _create_role(login, rights),
            f"ALTER ROLE {quote_identifier(login)} {rights} PASSWORD {quote_literal(verifier)};",
        ]
    )


def roles_sql(login: str) -> str:
    """Pure. SQL that makes the three roles and lets the login become each of them.

    To be run in the database itself, by its owner with CREATEROLE or by a superuser.
    """
    grant = f"GRANT {', '.join(ROLES)} TO {quote_identifier(login)}"
    rights = "NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE"
    return "\n".join(
        [
            *(_create_role(role, rights) for role in ROLES),
            "DO $yizhan$ BEGIN",
            # Before PostgreSQL 16 a membership has no options: there the attribute NOINHERIT does the same.
            "  IF current_setting('server_version_num')::int >= 160000 THEN",
            f"    EXECUTE {quote_literal(f'{grant} WITH INHERIT FALSE, SET TRUE')};",
            "  ELSE",
            f"    EXECUTE {quote_literal(grant)};",
            "  END IF;",
            "END $yizhan$;",
            "GRANT USAGE, CREATE ON SCHEMA public TO relay_owner;",
            "GRANT USAGE ON SCHEMA public TO relay_app, relay_ingest;",
        ]
    )


def ensure_roles(connection: psycopg.Connection[tuple[object, ...]], login: str) -> None:
    """Make the roles for a login, as that login or as an administrator, in the database of the connection.

    Raises RolesMissing if they are not there and the connection's user may not make them.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if _is_missing(connection, login):
            sql = roles_sql(login)
            try:
                with connection.transaction():
                    connection.execute(sql.encode())
            except psycopg.errors.InsufficientPrivilege as exc:
                why = str(exc.diag.message_primary)
                raise RolesMissing(
                    f"the database roles are missing and {login} may not make them: {why}", sql
                ) from exc
        # As the owner itself: default privileges belong to a role, and the login does not inherit its rights.
        connection.execute("SET LOCAL ROLE relay_owner")
        connection.execute(
            "ALTER DEFAULT PRIVILEGES FOR ROLE relay_owner"
            " GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO relay_app"
        )
        connection.execute(
            "ALTER DEFAULT PRIVILEGES FOR ROLE relay_owner GRANT USAGE ON SEQUENCES TO relay_app"
        )
        connection.execute("SET LOCAL ROLE NONE")


def refuse_dangerous_role(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Raise DangerousRole if this login, or a role it can become, passes through row-level security."""
    rows = connection.execute(
        """
        SELECT session_user::text, rolname::text, rolsuper FROM pg_roles
        WHERE (rolsuper OR rolbypassrls)
          AND (rolname = ANY(%s) OR pg_has_role(session_user, oid, %s))
        ORDER BY rolname <> session_user, rolname
        LIMIT 1
        """,
        (list(ROLES), _membership(connection)),
    ).fetchone()
    if rows is None:
        return
    login, role, is_superuser = rows
    what = "is a superuser" if is_superuser else "has BYPASSRLS"
    whose = f"the login {login}" if role == login else f"the role {role}, which {login} can become,"
    raise DangerousRole(
        f"{whose} {what} and would see through the walls between organizations: give DATABASE_URL a login of"
        " its own (CREATE ROLE yizhan LOGIN NOINHERIT PASSWORD '...')"
    )


def _create_role(name: str, rights: str) -> str:
    """CREATE ROLE has no IF NOT EXISTS; of two at once the second may see either error."""
    return (
        f"DO $yizhan$ BEGIN CREATE ROLE {quote_identifier(name)} {rights};"
        " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $yizhan$;"
    )


def _is_missing(connection: psycopg.Connection[tuple[object, ...]], login: str) -> bool:
    row = connection.execute(
        """
        SELECT count(*) FROM pg_roles
        WHERE rolname = ANY(%s) AND pg_has_role(%s::name, oid, %s)
          AND has_schema_privilege(oid, 'public', 'USAGE')
          AND (rolname <> 'relay_owner' OR has_schema_privilege(oid, 'public', 'CREATE'))
        """,
        (list(ROLES), login, _membership(connection)),
    ).fetchone()
    return row is None or row[0] != len(ROLES)


def _membership(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    """The privilege that means "may SET ROLE to it"; it has its own name since PostgreSQL 16."""
    return "SET" if connection.info.server_version >= 160000 else "MEMBER"
