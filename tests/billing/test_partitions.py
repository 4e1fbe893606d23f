from datetime import UTC, datetime

import psycopg
import pytest
from django.db import connection

from accounts.models import Organization
from billing import partitions, tasks
from billing.ingest import ingest
from billing.records import CallRecord

JULY_2031 = datetime(2031, 7, 20, tzinfo=UTC)


def partition_names() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'billing_usagerecord'::regclass"
        )
        return {name for (name,) in cursor.fetchall()}


@pytest.mark.parametrize(
    ("moment", "offset", "expected"),
    [
        (datetime(2026, 12, 31, 23, 59, tzinfo=UTC), 0, (2026, 12, 2027, 1)),
        (datetime(2026, 12, 31, 23, 59, tzinfo=UTC), 1, (2027, 1, 2027, 2)),
        (datetime(2026, 1, 1, tzinfo=UTC), 13, (2027, 2, 2027, 3)),
    ],
)
def test_months_end_where_the_next_begins(moment: datetime, offset: int, expected: tuple[int, ...]) -> None:
    first, after = partitions.month_bounds(moment, offset)
    assert (first.year, first.month, after.year, after.month) == expected
    assert (first.day, after.day) == (1, 1)


@pytest.mark.django_db
def test_migration_leaves_this_month_and_the_next_ones() -> None:
    names = partition_names()
    first, _ = partitions.month_bounds(datetime.now(UTC), 0)
    assert f"billing_usagerecord_{first:%Y_%m}" in names
    assert len(names) == partitions.MONTHS_AHEAD + 2


@pytest.mark.django_db
def test_the_keeper_makes_what_is_missing_once() -> None:
    made = partitions.keep(JULY_2031)
    assert made == [f"billing_usagerecord_2031_{month:02}" for month in (7, 8, 9, 10)]
    assert partitions.keep(JULY_2031) == []
    assert set(made) <= partition_names()


@pytest.mark.django_db
def test_a_new_partition_is_closed_to_the_application() -> None:
    name = partitions.keep(JULY_2031)[0]
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
        for role in ("relay_app", "relay_ingest"):
            cursor.execute(
                "SELECT has_table_privilege(%s, %s, 'SELECT, INSERT, UPDATE, DELETE')", [role, name]
            )
            assert cursor.fetchone() == (False,)


@pytest.mark.django_db
def test_the_task_runs_the_keeper() -> None:
    assert tasks.keep_partitions.run() == []


async def test_a_month_with_records_in_the_default_partition_is_left_there(
    acme: Organization, connect
) -> None:
    old = CallRecord(id="01890000-0000-7000-8000-000000000001", organization_id=acme.pk, key_id=1)
    await ingest(await connect(), [old])
    owner: psycopg.AsyncConnection = await connect("relay_owner")
    row = await (
        await owner.execute("SELECT tableoid::regclass::text AS place FROM billing_usagerecord")
    ).fetchone()
    assert row == {"place": "billing_usagerecord_default"}
