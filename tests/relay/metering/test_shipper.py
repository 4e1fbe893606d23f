"""Records on their way from the journal to the ledger, over a real database."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from django.db import connection

from accounts import scope
from accounts.models import Organization
from billing.balances import balances
from billing.models import UsageRecord
from gateway.database import conninfo
from relay.metering.journal import Journal, read_segment
from relay.metering.shipper import Shipper
from tests.fakes.tables import empty_tables
from tests.relay.metering.test_journal import record


@pytest.fixture(scope="module", autouse=True)
def left_empty(database: str) -> Iterator[None]:
    yield
    empty_tables(database)


@pytest.fixture
def organization(database: str, django_db_blocker, request: pytest.FixtureRequest) -> Iterator[Organization]:
    """Committed, because the shipper has a connection of its own; under a name of this test's own."""
    with django_db_blocker.unblock():
        with scope.site("test"):
            name = f"shipper-{abs(hash(request.node.nodeid)) % 10**12}"
            made, _ = Organization.objects.get_or_create(
                name=name, defaults={"title": "x", "currency": "USD"}
            )
        yield made
        connection.close()


@pytest.fixture
async def shipper(database: str, tmp_path: Path) -> AsyncIterator[Shipper]:
    made = Shipper(Journal(tmp_path), conninfo(database, role="relay_ingest"), tmp_path)
    yield made
    await made.close(5)
    made._journal.close_files()


def look(organization: Organization) -> tuple[int, int]:
    """How many records the organization has, and its balance; from a thread, whose connection is closed again."""
    try:
        with scope.site("test"), connection.cursor() as cursor:
            count = UsageRecord.objects.filter(organization=organization).count()
            return count, balances(cursor, [organization.pk])[organization.pk]
    finally:
        connection.close()


def put(shipper: Shipper, organization: Organization, count: int, **fields: object) -> None:
    for _ in range(count):
        one = record(amount_nano=5, currency="USD", model="m", **fields)
        one.organization_id = organization.pk
        shipper._journal.close(one)


async def test_it_works(shipper: Shipper, organization: Organization) -> None:
    put(shipper, organization, 3)
    assert await shipper.ship_once() == 3
    assert await shipper.ship_once() == 0
    assert await asyncio.to_thread(look, organization) == (3, -15)


async def test_closing_ships_what_waits(shipper: Shipper, organization: Organization) -> None:
    shipper.start()
    put(shipper, organization, 40)
    await shipper.close(5)
    assert shipper._journal.queued == 0
    assert await asyncio.to_thread(look, organization) == (40, -200)


async def test_two_turns_at_once_ship_each_record_once(shipper: Shipper, organization: Organization) -> None:
    put(shipper, organization, 50)
    assert sum(await asyncio.gather(*(shipper.ship_once() for _ in range(4)))) == 50
    assert await asyncio.to_thread(look, organization) == (50, -250)


async def test_a_record_that_the_database_refuses_stops_nobody(
    shipper: Shipper, organization: Organization, tmp_path: Path
) -> None:
    put(shipper, organization, 1)
    orphan = record(amount_nano=5, currency="USD")
    orphan.organization_id = 2**40
    shipper._journal.close(orphan)
    put(shipper, organization, 1)
    await shipper.ship_once()
    assert shipper._journal.queued == 0
    assert shipper.rejected == 1
    assert await asyncio.to_thread(look, organization) == (2, -10)
    _, kept = read_segment(tmp_path / "rejected.journal")
    assert kept == [orphan]


async def test_an_unreachable_database_leaves_the_records_in_the_journal(
    database: str, organization: Organization, tmp_path: Path
) -> None:
    nowhere = {**conninfo(database, role="relay_ingest"), "host": "127.0.0.1", "port": "1"}
    shipper = Shipper(Journal(tmp_path), nowhere, tmp_path)
    shipper.start()
    put(shipper, organization, 2)
    await asyncio.sleep(0.3)
    await shipper.close(0.2)
    assert shipper._journal.queued == 2
    shipper._journal.close_files()
    assert len(await asyncio.to_thread(lambda: list(tmp_path.glob("*.journal")))) == 1
