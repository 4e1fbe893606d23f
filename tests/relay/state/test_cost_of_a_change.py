"""One changed key costs what it costs, however many there are."""

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings

from gateway.database import conninfo
from relay.state.connection import connect
from relay.state.loader import SnapshotLoader
from tests.fakes.crowd import crowd_fingerprint, fill_with_crowd
from tests.fakes.tables import empty_tables

KEYS = 100_000
Owner = psycopg.AsyncConnection[Any]


@pytest.fixture(autouse=True)
def left_empty(database: str) -> Iterator[None]:
    yield
    empty_tables(database)


@pytest.fixture
async def owner(database: str) -> AsyncIterator[Owner]:
    info = conninfo(database, role="relay_owner")
    async with await psycopg.AsyncConnection.connect(**info, autocommit=True) as connection:
        yield connection


async def cost_of_one_change(url: str, owner: Owner, number: int) -> tuple[int, int, int, int]:
    """Of one changed key: queries, rows we read, rows the server read to find it, most bytes allocated meanwhile."""
    loader = SnapshotLoader(conninfo(url, role="relay_app"), field_keys=settings.FIELD_KEYS)
    async with await connect(conninfo(url, role="relay_app")) as connection:
        await loader._load_all(connection)
        await loader._free_left_over()
        found = []
        for rpm in range(10_001, 10_006):
            await owner.execute(
                "UPDATE accounts_key SET rpm = %s WHERE fingerprint = %s", [rpm, crowd_fingerprint(number)]
            )
            before = (loader.reading.queries, loader.reading.rows_read, await rows_touched(connection, owner))
            tracemalloc.start()
            await loader._refresh(connection)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            after = (loader.reading.queries, loader.reading.rows_read, await rows_touched(connection, owner))
            assert loader.snapshot.key(crowd_fingerprint(number)).rpm == rpm  # type: ignore[union-attr]
            found.append((*(new - old for new, old in zip(after, before, strict=True)), peak))
    await loader.close()
    return min(found)


async def rows_touched(connection: Owner, owner: Owner) -> int:
    """Rows of keys that the server has read so far, by whatever path, for this connection and all others."""
    for each in (connection, owner):
        await each.execute("SELECT pg_stat_force_next_flush()")
    cursor = await owner.execute(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'accounts_key'"
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_one_changed_key_costs_what_it_costs_among_ten(database: str, owner: Owner) -> None:
    fill_with_crowd(database, 10, organizations=2)
    few = await cost_of_one_change(database, owner, 7)
    empty_tables(database)
    fill_with_crowd(database, KEYS)
    many = await cost_of_one_change(database, owner, 7)
    assert many[:2] == few[:2]
    assert many[2] == 1 <= few[2]
    assert many[3] < few[3] + 4_096
