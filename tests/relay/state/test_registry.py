"""Who lives, and what is recorded, as the database says it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.database import conninfo
from relay.state.loader import DatabaseAway
from relay.state.registry import Registry
from tests.fakes.tcp_proxy import running_proxy

STORE = "127.0.0.1:1/0"


@pytest.fixture
async def made(database: str) -> AsyncIterator[Callable[..., Registry]]:
    found: list[Registry] = []

    def make(store: str = STORE, **given: str) -> Registry:
        found.append(Registry({**conninfo(database, role="relay_app"), **given}, store))
        return found[-1]

    yield make
    for registry in found:
        await registry.close()


async def test_those_who_share_a_store_see_each_other(made: Callable[..., Registry]) -> None:
    one, two, stranger = made(), made(), made("127.0.0.1:1/1")
    for registry in (two, stranger):
        await registry.peers()
    assert await one.peers() == {one.number, two.number}
    assert await stranger.peers() == {stranger.number}


async def test_one_that_is_gone_is_forgotten(made: Callable[..., Registry]) -> None:
    one, two = made(), made()
    await two.peers()
    assert two.number in await one.peers()
    await two.close()
    async with asyncio.timeout(10):
        while two.number in await one.peers():  # noqa: ASYNC110  # the database is asked
            await asyncio.sleep(0.01)


async def test_one_that_starts_is_there_without_being_asked(made: Callable[..., Registry]) -> None:
    one, two = made(), made()
    two.start()
    async with asyncio.timeout(10):
        while two.number not in await one.peers():  # noqa: ASYNC110  # the database is asked
            await asyncio.sleep(0.01)


async def test_one_that_is_just_back_does_not_say_that_it_is_alone(
    made: Callable[..., Registry], database: str
) -> None:
    parameters = conninfo(database, role="relay_app")
    with running_proxy(Path(parameters["host"]) / f".s.PGSQL.{parameters['port']}") as proxy:
        one = made(host="127.0.0.1", port=str(proxy.port))
        one.start()
        assert await one.peers() == {one.number}
        proxy.cut()
        with pytest.raises(DatabaseAway):
            await one.peers()
        proxy.restore()
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await one.peers() == {one.number}
                except DatabaseAway:
                    await asyncio.sleep(0.05)
                else:
                    break
        assert asyncio.get_running_loop().time() - began > 2.5


async def test_what_is_not_recorded_is_not_in_the_totals(made: Callable[..., Registry]) -> None:
    assert await made().totals(2**40, ["019aed00-0000-7000-8000-000000000000"]) == ({}, [])
