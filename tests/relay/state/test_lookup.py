"""A key that memory lacks: asked for once, in company, within bounds."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from relay.state import lookup
from relay.state.keys import KeyState
from relay.state.lookup import DatabaseAway, KeyLookUp


def key(fingerprint: bytes, *, revoked: bool = False) -> KeyState:
    return KeyState(
        id=1, organization_id=1, member_id=None, name="k", fingerprint=fingerprint, models=None, may_call=True,
        expires_at=None, revoked=revoked, budget_nano=None, rpm=None, concurrency=None,
    )  # fmt: skip


class Database:
    """Knows some keys, and answers when it is let."""

    def __init__(self) -> None:
        self.known: dict[bytes, KeyState] = {}
        self.asked: list[Sequence[bytes]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_away = False
        self.at_once = 0
        self.most_at_once = 0

    async def find(self, fingerprints: Sequence[bytes]) -> Sequence[KeyState]:
        self.asked.append(fingerprints)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.answers.wait()
        finally:
            self.at_once -= 1
        if self.is_away:
            raise DatabaseAway
        return [self.known[one] for one in fingerprints if one in self.known]


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def look_up(database: Database) -> AsyncIterator[KeyLookUp]:
    made = KeyLookUp(database.find)
    yield made
    await made.close()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_works(database: Database, look_up: KeyLookUp) -> None:
    database.known[b"old"] = key(b"old")
    assert await look_up.find([b"new", b"old"]) == key(b"old")
    assert await look_up.find([b"none"]) is None


async def test_no_is_remembered_and_yes_is_not(database: Database, look_up: KeyLookUp) -> None:
    """A key that exists is in memory from then on."""
    for _ in range(3):
        assert await look_up.find([b"none"]) is None
    assert len(database.asked) == 1
    look_up.forget([b"none", b"other"])
    database.known[b"none"] = key(b"none")
    assert await look_up.find([b"none"]) == key(b"none")


async def test_a_key_that_was_revoked_long_ago_is_remembered(database: Database, look_up: KeyLookUp) -> None:
    """Memory does not keep it, and its owner may go on sending it."""
    database.known[b"old"] = key(b"old", revoked=True)
    for _ in range(3):
        assert (await look_up.find([b"old"])).revoked  # type: ignore[union-attr]
    assert len(database.asked) == 1


async def test_no_is_forgotten_after_a_while(
    database: Database, look_up: KeyLookUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "REMEMBERED_S", 0.0)
    assert await look_up.find([b"none"]) is None
    assert await look_up.find([b"none"]) is None
    assert len(database.asked) == 2


async def test_many_that_wait_are_asked_for_together(database: Database, look_up: KeyLookUp) -> None:
    database.answers.clear()
    first = asyncio.create_task(look_up.find([b"first"]))
    await settle()
    rest = [asyncio.create_task(look_up.find([b"%d" % number])) for number in range(100)]
    same = [asyncio.create_task(look_up.find([b"7"])) for _ in range(100)]
    await settle()
    database.known[b"7"] = key(b"7")
    database.answers.set()
    assert await first is None
    found = await asyncio.gather(*rest, *same)
    assert [one.fingerprint for one in found if one is not None] == [b"7"] * 101
    assert [len(asked) for asked in database.asked] == [1, 100]


async def test_a_flood_of_different_keys_stays_within_bounds(
    database: Database, look_up: KeyLookUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "WAITING", 300)
    monkeypatch.setattr(lookup, "REMEMBERED", 50)
    refused = 0
    for wave in range(5):
        database.answers.clear()
        asking = [asyncio.create_task(look_up.find([b"%d-%d" % (wave, number)])) for number in range(400)]
        await settle()
        database.answers.set()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        refused += sum(isinstance(answer, DatabaseAway) for answer in answers)
        assert answers.count(None) == 300
    assert refused == 5 * 100
    assert look_up.remembered <= 100
    assert database.most_at_once == 1
    assert max(map(len, database.asked)) <= lookup.AT_ONCE
    assert len(database.asked) <= 5 * 3


async def test_nobody_hears_no_while_the_database_is_away(database: Database, look_up: KeyLookUp) -> None:
    database.is_away = True
    with pytest.raises(DatabaseAway):
        await look_up.find([b"none"])
    database.is_away = False
    assert await look_up.find([b"none"]) is None


async def test_a_wait_is_bounded_though_the_database_hangs(
    database: Database, look_up: KeyLookUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "LOOK_UP_S", 0.01)
    database.answers.clear()
    with pytest.raises(DatabaseAway):
        await look_up.find([b"none"])
    database.answers.set()
    monkeypatch.setattr(lookup, "LOOK_UP_S", 10.0)
    assert await look_up.find([b"none"]) is None


async def test_one_who_leaves_takes_the_answer_from_nobody(database: Database, look_up: KeyLookUp) -> None:
    database.answers.clear()
    leaving, staying = (asyncio.create_task(look_up.find([b"same"])) for _ in range(2))
    await settle()
    leaving.cancel()
    await settle()
    database.answers.set()
    assert await staying is None
    assert len(database.asked) == 1


async def test_at_the_end_who_waits_hears_that_the_database_is_away(
    database: Database, look_up: KeyLookUp
) -> None:
    database.answers.clear()
    asking = asyncio.create_task(look_up.find([b"none"]))
    await settle()
    await look_up.close()
    with pytest.raises(DatabaseAway):
        await asking
