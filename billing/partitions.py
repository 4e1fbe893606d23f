"""The keeper of the usage table's monthly partitions.

Partitions are made ahead of time, so that a record never waits for one; what no month fits goes to the
default partition. Nobody but the owner may touch a partition directly: row-level security is on the parent.
"""

from datetime import UTC, datetime

from django.db import connection, transaction

__all__ = ["keep", "month_bounds"]

MONTHS_AHEAD = 3
_TABLE = "billing_usagerecord"


def month_bounds(moment: datetime, offset: int) -> tuple[datetime, datetime]:
    """Pure. First instant of the month `offset` months after `moment`'s, and of the one after it, in UTC."""
    index = moment.year * 12 + moment.month - 1 + offset
    first = datetime(index // 12, index % 12 + 1, 1, tzinfo=UTC)
    after = datetime((index + 1) // 12, (index + 1) % 12 + 1, 1, tzinfo=UTC)
    return first, after


def keep(now: datetime | None = None) -> list[str]:
    """Make the partitions from this month to `MONTHS_AHEAD` months on that are missing; returns their names.

    Idempotent, safe when two run at once (an advisory lock). A month whose rows already lie in the default
    partition is left there: moving them is an operator's decision.
    """
    now = now or datetime.now(UTC)
    made = []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE relay_owner")
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('billing.partitions'))")
        for offset in range(MONTHS_AHEAD + 1):
            first, after = month_bounds(now.astimezone(UTC), offset)
            name = f"{_TABLE}_{first:%Y_%m}"
            cursor.execute("SELECT to_regclass(%s)", [name])
            if cursor.fetchone()[0] is not None:
                continue
            cursor.execute(
                f"SELECT EXISTS (SELECT 1 FROM {_TABLE}_default WHERE created_at >= %s AND created_at < %s)",
                [first, after],
            )
            if cursor.fetchone()[0]:
                continue
            bounds = f"FROM ('{first:%Y-%m-%d}+00') TO ('{after:%Y-%m-%d}+00')"
            cursor.execute(f"CREATE TABLE {name} PARTITION OF {_TABLE} FOR VALUES {bounds}")
            cursor.execute(f"REVOKE ALL ON {name} FROM relay_app")
            made.append(name)
    return made
