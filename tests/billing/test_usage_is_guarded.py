"""Row-level security of what calls leave behind, with committed rows of two organizations."""

from collections.abc import Callable

import psycopg
import pytest

from accounts.models import Organization
from billing.ingest import ingest
from billing.records import CallRecord

TABLES = ("billing_usagerecord", "billing_posting", "billing_ledgerentry", "billing_spenttotal")


@pytest.fixture
async def app(acme, stranger, call: Callable[..., CallRecord], connect) -> psycopg.AsyncConnection:
    """A connection of the application; acme made two calls, the stranger one."""
    await ingest(await connect(), [call(acme), call(acme), call(stranger, amount_nano=5)])
    return await connect("relay_app")


async def organizations_seen(app: psycopg.AsyncConnection, table: str, **settings: str) -> list[int]:
    """Of which organizations a query without any filter sees rows, under these transaction-local settings."""
    async with app.transaction():
        for name, value in settings.items():
            await app.execute("SELECT set_config(%s, %s, true)", [f"app.{name}", value])
        found = await app.execute(f"SELECT DISTINCT organization_id FROM {table} ORDER BY 1")
        return [row["organization_id"] for row in await found.fetchall()]


@pytest.mark.parametrize("table", TABLES)
async def test_raw_sql_without_a_filter_sees_one_organization(app, acme, stranger, table: str) -> None:
    assert await organizations_seen(app, table, org=str(acme.pk)) == [acme.pk]
    assert await organizations_seen(app, table, org=str(stranger.pk)) == [stranger.pk]
    assert await organizations_seen(app, table, site="test") == sorted([acme.pk, stranger.pk])


@pytest.mark.parametrize("table", TABLES)
async def test_without_a_scope_there_is_no_row(app, table: str) -> None:
    assert await organizations_seen(app, table) == []
    assert await organizations_seen(app, table, org="", site="") == []


async def test_a_scope_ends_with_its_transaction(app: psycopg.AsyncConnection, acme: Organization) -> None:
    await organizations_seen(app, "billing_posting", org=str(acme.pk))
    assert await organizations_seen(app, "billing_posting") == []


async def test_a_posting_for_another_organization_is_refused(app, acme, stranger) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        async with app.transaction():
            await app.execute("SELECT set_config('app.org', %s, true)", [str(acme.pk)])
            await app.execute(
                "INSERT INTO billing_posting (organization_id, kind, reference, memo, created_at)"
                " VALUES (%s, 'top_up', gen_random_uuid(), '', now())",
                [stranger.pk],
            )
