"""Keys in few bytes: nothing of a key is lost in the packing, and the table is what a dictionary would be."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relay.state.keys import KeyState, KeyTable

LARGEST = 2**63 - 1


def maybe(values: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.none() | values


keys = st.builds(
    KeyState,
    id=st.integers(1, LARGEST),
    organization_id=st.integers(1, LARGEST),
    member_id=maybe(st.integers(1, LARGEST)),
    name=st.text(max_size=100),
    fingerprint=st.binary(min_size=32, max_size=32),
    models=st.none() | st.frozensets(st.text(min_size=1, max_size=20), max_size=5),
    may_call=st.booleans(),
    expires_at=st.none() | st.floats(0, 2**33),
    revoked=st.booleans(),
    budget_nano=maybe(st.integers(0, LARGEST)),
    rpm=maybe(st.integers(0, 2**31 - 1)),
    concurrency=maybe(st.integers(0, 2**31 - 1)),
)


@given(keys)
def test_a_key_comes_out_as_it_went_in(key: KeyState) -> None:
    table = KeyTable()
    assert table.put(key) == (key.fingerprint,)
    assert table.get(key.fingerprint) == key
    assert table.put(key) == ()
    assert len(table) == 1


def key(number: int, fingerprint: int, **changes: object) -> KeyState:
    made = KeyState(
        id=number, organization_id=1, member_id=None, name="k", fingerprint=b"%032d" % fingerprint, models=None,
        may_call=True, expires_at=None, revoked=False, budget_nano=None, rpm=None, concurrency=None,
    )  # fmt: skip
    return replace(made, **changes)


def test_keys_for_the_same_models_share_one_set() -> None:
    table = KeyTable()
    for number in range(2):
        table.put(key(number, number, models=frozenset({"b", "a"})))
    first, second = (table.get(b"%032d" % number) for number in range(2))
    assert first is not None and second is not None
    assert first.models is second.models == frozenset({"a", "b"})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_fingerprint_that_goes_to_another_key(order: tuple[int, int]) -> None:
    """Whichever of the two rows is read first."""
    table = KeyTable()
    table.put(key(1, 7))
    steps = (lambda: table.drop(1), lambda: table.put(key(2, 7)))
    for step in order:
        steps[step]()
    found = table.get(b"%032d" % 7)
    assert found is not None
    assert (found.id, len(table)) == (2, 1)


def test_keys_that_change_their_fingerprints_with_each_other() -> None:
    table = KeyTable()
    for change in (key(1, 1), key(2, 2), key(1, 2), key(2, 1)):
        table.put(change)
    assert [table.get(b"%032d" % number).id for number in (1, 2)] == [2, 1]  # type: ignore[union-attr]


@dataclass
class Both:
    """A table and the dictionary that it ought to be."""

    table: KeyTable = field(default_factory=KeyTable)
    plain: dict[int, KeyState] = field(default_factory=dict)

    def change(self, draw: random.Random) -> None:
        number = draw.randrange(600)
        if draw.random() < 0.2:
            self.table.drop(number)
            self.plain.pop(number, None)
        else:
            self.plain[number] = key(number, number, rpm=draw.randrange(3))
            self.table.put(self.plain[number])

    def branch(self, *, anew: bool = False) -> "Both":
        return Both(self.table.branch(anew=anew), dict(self.plain))

    def check(self) -> None:
        found = {number: self.table.get(b"%032d" % number) for number in range(600)}
        assert {number: one for number, one in found.items() if one is not None} == self.plain
        assert len(self.table) == len(self.plain)


@pytest.mark.parametrize("seed", range(5))
def test_a_table_and_its_branch_do_not_see_each_other(seed: int) -> None:
    draw = random.Random(seed)
    used = Both()
    for _ in range(4):
        for _ in range(500):
            used.change(draw)
        branch = used.branch()
        for _ in range(300):
            draw.choice((used, branch)).change(draw)
        used.check()
        branch.check()
        if draw.random() < 0.5:
            left_over, used = used.table, branch
            used.table.settle()
            for _ in left_over.free():
                pass
            used.check()


def test_what_was_not_put_anew_is_dropped() -> None:
    used = Both()
    for number in range(600):
        used.table.put(key(number, number))
    branch = used.table.branch(anew=True)
    for number in range(0, 600, 2):
        branch.put(key(number, number))
    for _ in branch.drop_unseen():
        pass
    assert (len(branch), len(used.table)) == (300, 600)
    assert branch.get(b"%032d" % 1) is None
    assert branch.get(b"%032d" % 2) == key(2, 2)
