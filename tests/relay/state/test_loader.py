"""The snapshot is loaded whole, follows every commit, and survives the database's absence."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.utils import timezone

from accounts.keys import fingerprint, make_key
from gateway.database import conninfo
from relay.state.loader import DatabaseAway, SnapshotLoader
from relay.state.reading import Look
from relay.state.sealing import seal, upstream_subject
from tests.fakes.tables import empty_tables

numbers = itertools.count(1)
Owner = psycopg.AsyncConnection[Any]


@pytest.fixture(scope="module", autouse=True)
def left_empty(database: str) -> Iterator[None]:
    yield
    empty_tables(database)


@pytest.fixture
async def owner(database: str) -> AsyncIterator[Owner]:
    """The control plane's side: writes what it likes, each statement its own transaction."""
    connection = await psycopg.AsyncConnection.connect(
        **conninfo(database, role="relay_owner"), autocommit=True
    )
    async with connection:
        yield connection


@pytest.fixture
async def loader(database: str) -> AsyncIterator[SnapshotLoader]:
    made = SnapshotLoader(conninfo(database, role="relay_app"), field_keys=settings.FIELD_KEYS)
    made.start()
    await made.until_loaded(10)
    assert made.loaded.is_set()
    yield made
    await made.close()


async def soon(look: Callable[[], object], *, within_s: float = 2.0) -> None:
    async with asyncio.timeout(within_s):
        while not look():  # noqa: ASYNC110  # a snapshot has no event for each change
            await asyncio.sleep(0.005)


def unique(word: str) -> str:
    return f"{word}-{os.getpid()}-{time.time_ns()}-{next(numbers)}"


async def insert(owner: Owner, table: str, **columns: object) -> int:
    names = ", ".join(columns)
    marks = ", ".join(["%s"] * len(columns))
    cursor = await owner.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id".encode(), list(columns.values())
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def make_organization(owner: Owner) -> int:
    name = unique("org")
    return await insert(
        owner, "accounts_organization", name=name, title=name, currency="USD", time_zone="UTC", enabled=True,
        created_at=timezone.now(),
    )  # fmt: skip


async def make_key_row(owner: Owner, organization_id: int) -> tuple[int, bytes]:
    print_ = fingerprint(make_key().encode(), settings.KEY_PEPPERS[0])
    key_id = await insert(
        owner, "accounts_key", organization_id=organization_id, name=unique("key"), prefix="sk", fingerprint=print_,
        scopes=["call"], created_at=timezone.now(), **REVOKED,
    )  # fmt: skip
    return key_id, print_


async def make_model(owner: Owner, **columns: object) -> str:
    name = unique("model")
    usual = {
        "name": name, "aliases": [], "kind": "chat", "context_tokens": 10, "hold_output_tokens": 5, "enabled": True,
        "created_at": timezone.now(),
    }  # fmt: skip
    await insert(owner, "relay_model", **{**usual, **columns})
    return name


async def make_price(owner: Owner, name: str, output: str, *, in_s: float = 0.0) -> int:
    return await insert(
        owner, "billing_price", model_name=name, currency="USD", input="1", output=output, discount="1",
        valid_from=timezone.now() + timedelta(seconds=in_s),
    )  # fmt: skip


REVOKED: dict[str, object] = {}


@pytest.fixture(autouse=True)
async def columns_without_default(owner: Owner) -> None:
    """Columns that the services fill in and that have no default in the database."""
    cursor = await owner.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'accounts_key'"
        " AND is_nullable = 'NO' AND column_default IS NULL AND data_type = 'character varying'"
    )
    known = {"name", "prefix"}
    REVOKED.clear()
    REVOKED.update({name: "" for (name,) in await cursor.fetchall() if name not in known})


async def test_it_works(owner: Owner, loader: SnapshotLoader) -> None:
    organization_id = await make_organization(owner)
    _, print_ = await make_key_row(owner, organization_id)
    name = await make_model(owner, aliases=["alias-of-it"])
    await make_price(owner, name, "3")
    await soon(lambda: (found := loader.snapshot.model(name)) and found.rates)
    await soon(lambda: loader.snapshot.key(print_))
    assert loader.snapshot.organizations[organization_id].currency == "USD"
    assert loader.snapshot.model("alias-of-it") is loader.snapshot.model(name)


async def test_what_was_there_before_is_loaded_at_the_start(owner: Owner, database: str) -> None:
    organization_id = await make_organization(owner)
    _, print_ = await make_key_row(owner, organization_id)
    made = SnapshotLoader(conninfo(database, role="relay_app"), field_keys=settings.FIELD_KEYS)
    assert made.snapshot.key(print_) is None
    made.start()
    await made.until_loaded(10)
    assert made.snapshot.key(print_) is not None
    await made.close()


async def test_waiting_for_a_load_that_does_not_come_ends(database: str) -> None:
    nowhere = {**conninfo(database, role="relay_app"), "host": "127.0.0.1", "port": "1"}
    made = SnapshotLoader(nowhere, field_keys=settings.FIELD_KEYS)
    made.start()
    await made.until_loaded(0.1)
    assert not made.loaded.is_set()
    with pytest.raises(DatabaseAway):
        await made.find_key([b"x" * 32])
    with pytest.raises(DatabaseAway):
        await made.read_totals(1)
    await made.close()


async def test_changes_and_deletions_are_followed(owner: Owner, loader: SnapshotLoader) -> None:
    organization_id = await make_organization(owner)
    key_id, print_ = await make_key_row(owner, organization_id)
    await soon(lambda: loader.snapshot.key(print_))
    await owner.execute("UPDATE accounts_key SET rpm = 7 WHERE id = %s", [key_id])
    await soon(lambda: loader.snapshot.key(print_).rpm == 7)  # type: ignore[union-attr]
    await owner.execute("DELETE FROM accounts_key WHERE id = %s", [key_id])
    await soon(lambda: loader.snapshot.key(print_) is None)


async def test_changes_are_found_without_notifications(owner: Owner, loader: SnapshotLoader) -> None:
    """As behind a pooler that carries none: the change is in the log, and nobody is told."""
    async with owner.transaction():
        await owner.execute("ALTER TABLE relay_model DISABLE TRIGGER note_change")
        name = await make_model(owner)
        await owner.execute(
            "INSERT INTO relay_change (kind, row_id) SELECT 'model', id FROM relay_model WHERE name = %s",
            [name],
        )
        await owner.execute("ALTER TABLE relay_model ENABLE TRIGGER note_change")
    await soon(lambda: loader.snapshot.model(name))


async def test_a_transaction_that_commits_late_is_not_missed(
    owner: Owner, loader: SnapshotLoader, database: str
) -> None:
    late = await psycopg.AsyncConnection.connect(**conninfo(database, role="relay_owner"))
    async with late:
        slow_name = unique("late")
        await late.execute(
            "INSERT INTO relay_model (name, aliases, kind, context_tokens, hold_output_tokens, enabled, created_at)"
            " VALUES (%s, '{}', 'chat', 1, 1, true, now())",
            [slow_name],
        )
        # Others commit meanwhile, and the loader looks several times.
        for _ in range(3):
            quick = await make_model(owner)
            await soon(lambda name=quick: loader.snapshot.model(name))
        assert loader.snapshot.model(slow_name) is None
        await late.commit()
    await soon(lambda: loader.snapshot.model(slow_name))


async def test_nothing_is_read_twice_while_an_old_transaction_stays_open(
    owner: Owner, loader: SnapshotLoader, database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(**conninfo(database, role="relay_owner")) as old:
        await make_model(old)
        name = await make_model(owner)
        await soon(lambda: loader.snapshot.model(name))
        rows, looks = loader.reading.rows_read, loader.reading.queries
        await soon(lambda: loader.reading.queries >= looks + 4, within_s=10)
        # A look reads one row of its own and none of the changes that it has seen before.
        assert loader.reading.rows_read - rows <= (loader.reading.queries - looks) / 2 + 1
        await old.rollback()


REASONS: dict[str, Callable[[Look], Look]] = {
    "the log was cut": lambda look: replace(look, at=look.at - timedelta(hours=1)),
    "an older database was restored": lambda look: replace(look, seen="9999999999:9999999999:"),
    "the server was started again": lambda look: replace(look, server=look.server - timedelta(hours=1)),
}


@pytest.mark.parametrize("reason", REASONS)
async def test_everything_is_read_anew_where_the_log_may_not_tell_all(
    owner: Owner, loader: SnapshotLoader, reason: str
) -> None:
    organization_id = await make_organization(owner)
    key_id, print_ = await make_key_row(owner, organization_id)
    gone_id, gone = await make_key_row(owner, organization_id)
    name = await make_model(owner)
    await soon(lambda: loader.snapshot.key(gone) and loader.snapshot.model(name))
    same = loader.snapshot.organizations[organization_id]
    tables = ("accounts_key", "relay_model")
    async with owner.transaction():  # changes that are not in the log
        for table in tables:
            await owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER note_change".encode())
        await owner.execute("UPDATE accounts_key SET rpm = 7 WHERE id = %s", [key_id])
        await owner.execute("DELETE FROM accounts_key WHERE id = %s", [gone_id])
        await owner.execute("DELETE FROM relay_model WHERE name = %s", [name])
        await owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in tables:
            await owner.execute(f"ALTER TABLE {table} ENABLE TRIGGER note_change".encode())
    assert loader._look is not None
    loader._look = REASONS[reason](loader._look)
    await soon(lambda: loader.snapshot.key(print_).rpm == 7, within_s=10)  # type: ignore[union-attr]
    assert loader.snapshot.key(gone) is None
    assert loader.snapshot.model(name) is None
    assert loader.snapshot.organizations[organization_id] is same


async def test_a_price_that_is_deleted_gives_way_to_the_one_before(
    owner: Owner, loader: SnapshotLoader
) -> None:
    name = await make_model(owner)
    await make_price(owner, name, "2", in_s=-20)
    price_id = await make_price(owner, name, "3", in_s=-10)

    def output() -> int:
        model = loader.snapshot.model(name)
        return model.rates.output // 10**12 if model and model.rates else 0

    await soon(lambda: output() == 3)
    await owner.execute("DELETE FROM billing_price WHERE id = %s", [price_id])
    await soon(lambda: output() == 2)


async def test_rows_of_one_transaction_appear_together(owner: Owner, loader: SnapshotLoader) -> None:
    seen: list[bool] = []
    for _ in range(20):
        async with owner.transaction():
            name = await make_model(owner)
            await make_price(owner, name, "3")
        await soon(lambda name=name: loader.snapshot.model(name))
        seen.append(loader.snapshot.model(name).rates is not None)  # type: ignore[union-attr]
    assert all(seen)


async def test_the_newest_price_in_force_counts(owner: Owner, loader: SnapshotLoader) -> None:
    name = await make_model(owner)
    await make_price(owner, name, "3", in_s=-10)
    await make_price(owner, name, "2", in_s=-20)
    await make_price(owner, name, "9", in_s=3600)
    await soon(lambda: loader.snapshot.model(name) and loader.snapshot.model(name).rates)  # type: ignore[union-attr]
    assert loader.snapshot.model(name).rates.output == 3 * 10**12  # type: ignore[union-attr]


async def test_a_price_comes_into_force_at_its_time(owner: Owner, loader: SnapshotLoader) -> None:
    name = await make_model(owner)
    await make_price(owner, name, "3", in_s=-1)
    await make_price(owner, name, "4", in_s=0.7)
    await make_price(owner, name, "5", in_s=1.4)
    found: list[int] = []

    def output() -> int:
        model = loader.snapshot.model(name)
        value = model.rates.output // 10**12 if model and model.rates else 0
        if value and value not in found:
            found.append(value)
        return value

    await soon(lambda: output() == 5, within_s=5)
    assert found == [3, 4, 5]


async def test_an_upstream_is_opened_or_switched_off(owner: Owner, loader: SnapshotLoader) -> None:
    name = unique("up")
    sealed = seal(b"secret", settings.FIELD_KEYS, associated=upstream_subject(name))
    usual = {
        "protocol": "openai", "base_url": "http://x/v1", "enabled": True, "cost_multiplier": "1.5", "limits": "{}",
        "timeouts": '{"idle_s": 3, "total_s": null}', "extra_headers": '{"x-a": "b"}', "allow_private": True,
        "probe": False, "created_at": timezone.now(),
    }  # fmt: skip
    good = await insert(owner, "relay_upstream", name=name, credential_sealed=sealed, **usual)
    moved = await insert(owner, "relay_upstream", name=unique("up"), credential_sealed=sealed, **usual)
    await soon(lambda: {good, moved} <= loader.snapshot.upstreams.keys())
    state = loader.snapshot.upstreams[good]
    assert (state.credential, state.enabled, state.cost_multiplier) == ("secret", True, 1_500_000)
    assert (state.timeouts.idle_s, state.timeouts.total_s) == (3.0, 3600.0)
    assert state.extra_headers == (("x-a", "b"),)
    # A sealed credential belongs to its own upstream only.
    assert (loader.snapshot.upstreams[moved].credential, loader.snapshot.upstreams[moved].enabled) == (
        "",
        False,
    )
    assert "secret" not in repr(state)


# One key, looked up.


async def test_a_key_that_memory_lacks_is_looked_up_once(owner: Owner, loader: SnapshotLoader) -> None:
    organization_id = await make_organization(owner)
    key_id, print_ = await make_key_row(owner, organization_id)
    found = await loader.find_key([b"another", print_])
    assert found is not None
    assert found.id == key_id
    assert loader.snapshot.key(print_) is not None


async def test_no_is_remembered_until_a_key_is_made(owner: Owner, loader: SnapshotLoader) -> None:
    organization_id = await make_organization(owner)
    _, print_ = await make_key_row(owner, organization_id)
    await soon(lambda: loader.snapshot.key(print_))
    wrong = fingerprint(make_key().encode(), settings.KEY_PEPPERS[0])
    assert await loader.find_key([wrong]) is None
    queries = loader.reading.queries
    assert await loader.find_key([wrong]) is None
    assert loader.reading.queries == queries
    await owner.execute("UPDATE accounts_key SET fingerprint = %s WHERE fingerprint = %s", [wrong, print_])
    await soon(lambda: loader.snapshot.key(wrong))
    assert loader.look_up.remembered == 0


async def test_a_look_up_does_not_undo_a_change_that_came_in_meanwhile(
    owner: Owner, loader: SnapshotLoader
) -> None:
    """A key is revoked while its row is on its way to us: the older row must not win."""
    organization_id = await make_organization(owner)
    key_id, print_ = await make_key_row(owner, organization_id)
    await soon(lambda: loader.snapshot.key(print_))
    read: Callable[..., Awaitable[Any]] = loader.reading.keys
    looks = []

    async def slowly(*given: Any) -> Any:
        found = await read(*given)
        looks.extend(found)
        await owner.execute("UPDATE accounts_key SET revoked_at = now() WHERE id = %s", [key_id])
        await soon(lambda: (key := loader.snapshot.key(print_)) and key.revoked)
        return found

    loader.reading.keys = slowly  # type: ignore[method-assign]
    found = await loader.find_key([print_])
    assert not looks[0].revoked
    assert found is not None
    assert found.revoked
    assert loader.snapshot.key(print_).revoked  # type: ignore[union-attr]


async def test_totals_are_read(owner: Owner, loader: SnapshotLoader) -> None:
    organization_id = await make_organization(owner)
    assert await loader.read_totals(organization_id) == {}
    await insert(
        owner, "billing_spenttotal", organization_id=organization_id, level="o", spent_nano=7, calls=1
    )
    assert await loader.read_totals(organization_id) == {"o": 7}


async def test_a_connection_that_breaks_is_made_again(
    owner: Owner, loader: SnapshotLoader, servers: dict[str, str]
) -> None:
    async with await psycopg.AsyncConnection.connect(servers["admin"], autocommit=True) as admin:
        await loader.find_key([b"y" * 32])
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND application_name = 'yizhan' AND pid <> %s",
            [owner.info.dbname, owner.info.backend_pid],
        )
    name = await make_model(owner)
    await soon(lambda: loader.snapshot.model(name), within_s=5)
    with pytest.raises(DatabaseAway):
        await loader.find_key([b"z" * 32])
    assert await loader.find_key([b"z" * 32]) is None
