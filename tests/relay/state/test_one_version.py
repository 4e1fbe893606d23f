"""Whatever is read in however many pieces: in no turn of the loop do calls see half of a transaction."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings

from gateway.database import conninfo
from relay.state.loader import SnapshotLoader
from tests.fakes.crowd import crowd_fingerprint, fill_with_crowd
from tests.fakes.tables import empty_tables

KEYS = 2_000
Owner = psycopg.AsyncConnection[Any]

# One version of everything, in one transaction: each row carries its number.
MODEL = """
    INSERT INTO relay_model (name, aliases, kind, context_tokens, hold_output_tokens, enabled, created_at)
    VALUES ('model-of-all', '{}', 'chat', 1, 0, true, now()) RETURNING id
"""
UPSTREAM = """
    INSERT INTO relay_upstream (name, protocol, base_url, credential_sealed, enabled, cost_multiplier, limits, timeouts,
                                extra_headers, allow_private, probe, created_at)
    VALUES ('upstream-of-all', 'openai', 'http://x/0', '', true, 1, '{}', '{}', '{}', true, false, now()) RETURNING id
"""
ROUTE = """
    INSERT INTO relay_route (model_id, upstream_id, upstream_model, priority, weight, enabled)
    VALUES (%s, %s, '0', 0, 1, true)
"""
PRICE = """
    INSERT INTO billing_price (model_name, currency, input, output, discount, valid_from)
    VALUES ('model-of-all', 'USD', 0, %s, 1, clock_timestamp())
"""


class Site:
    """Writes versions, and looks whether the snapshot is all of one."""

    def __init__(self, owner: Owner, loader: SnapshotLoader) -> None:
        self._owner = owner
        self._loader = loader
        self._draw = random.Random(1)
        self.seen: list[int] = []

    async def prepare(self) -> None:
        async with self._owner.transaction():
            (model,) = await (await self._owner.execute(MODEL)).fetchone()  # type: ignore[misc]
            (upstream,) = await (await self._owner.execute(UPSTREAM)).fetchone()  # type: ignore[misc]
            await self._owner.execute(ROUTE, [model, upstream])
        await self.write(0)

    async def write(self, number: int) -> None:
        changes = (
            "UPDATE accounts_organization SET rpm = %s",
            "UPDATE accounts_key SET rpm = %s",
            "UPDATE relay_model SET hold_output_tokens = %s",
            "UPDATE relay_route SET upstream_model = %s",
            "UPDATE relay_upstream SET base_url = 'http://x/' || %s::text",
            PRICE,
        )
        async with self._owner.transaction():
            for change in changes:
                await self._owner.execute(change.encode(), [number])

    def version(self) -> int | None:
        """What everything says that a call would look up now, of a few keys drawn anew each time."""
        snapshot = self._loader.snapshot
        model = snapshot.model("model-of-all")
        if model is None or model.rates is None:
            return None
        (route,) = model.routes
        found = {
            model.hold_output_tokens,
            model.rates.output // 10**12,
            int(route.upstream_model),
            int(snapshot.upstreams[route.upstream_id].base_url.rpartition("/")[2]),
        }
        for _ in range(5):
            key = snapshot.key(crowd_fingerprint(self._draw.randint(1, KEYS)))
            assert key is not None
            found |= {key.rpm, snapshot.organizations[key.organization_id].rpm}  # type: ignore[arg-type]
        (version,) = found
        return version

    async def watch(self) -> None:
        """In every turn of the loop."""
        while True:
            version = self.version()
            if version is not None and version not in self.seen:
                self.seen.append(version)
            await asyncio.sleep(0)

    async def until(self, number: int) -> None:
        async with asyncio.timeout(30):
            while self.version() != number:  # noqa: ASYNC110  # a snapshot has no event for each change
                await asyncio.sleep(0.002)


@pytest.fixture(autouse=True)
def crowded(database: str) -> Iterator[None]:
    fill_with_crowd(database, KEYS, organizations=20)
    yield
    empty_tables(database)


@pytest.fixture
async def site(database: str) -> AsyncIterator[Site]:
    loader = SnapshotLoader(conninfo(database, role="relay_app"), field_keys=settings.FIELD_KEYS)
    info = conninfo(database, role="relay_owner")
    async with await psycopg.AsyncConnection.connect(**info, autocommit=True) as owner:
        made = Site(owner, loader)
        await made.prepare()
        loader.start()
        await loader.until_loaded(30)
        assert loader.loaded.is_set()
        yield made
        await loader.close()


async def follow(site: Site) -> None:
    pass


async def read_anew(site: Site) -> None:
    look = site._loader._look
    assert look is not None
    site._loader._look = replace(look, at=look.at - timedelta(hours=2))


async def look_up(site: Site) -> None:
    """Look-ups bring memory further while it is being brought further."""
    for _ in range(20):
        await site._loader.find_key([crowd_fingerprint(1)])


@pytest.mark.parametrize("besides", [follow, read_anew, look_up])
async def test_every_turn_sees_one_version(site: Site, besides: Callable[[Site], Awaitable[None]]) -> None:
    watching = asyncio.create_task(site.watch())
    for number in range(1, 6):
        await site.write(number)
        await besides(site)
        await site.until(number)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert site.seen == sorted(site.seen)


async def test_a_reading_of_everything_that_others_overtake(site: Site) -> None:
    """Versions are written while everything is read anew, and a look-up takes some of them over at once."""
    watching = asyncio.create_task(site.watch())
    for number in range(1, 6):
        await read_anew(site)
        writing = asyncio.create_task(site.write(number))
        await look_up(site)
        await writing
        await look_up(site)
        await site.until(number)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert site.seen == sorted(site.seen)
