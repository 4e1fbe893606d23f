"""What the data plane looks up in memory: keys by fingerprint, models by name, alias and pattern."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from billing.pricing import Rates
from relay.state.snapshot import (
    RECENT,
    KeyState,
    ModelState,
    OrganizationState,
    Snapshot,
    SnapshotChange,
)

KEY = KeyState(
    id=1, organization_id=1, member_id=None, name="k", fingerprint=b"print", models=None, may_call=True,
    expires_at=None, revoked=False, budget_nano=None, rpm=None, concurrency=None,
)  # fmt: skip
ORGANIZATION = OrganizationState(1, "acme", "USD", True, 0, None, None, None)
RATES = Rates.of(version=1, model_name="m", currency="USD", input="1", output="2")


def model(number: int, name: str, *aliases: str, enabled: bool = True) -> ModelState:
    return ModelState(
        id=number, name=name, aliases=aliases, kind="chat", context_tokens=1, hold_output_tokens=1, enabled=enabled,
        created=0, routes=(),
    )  # fmt: skip


def of_models(*models: ModelState) -> Snapshot:
    snapshot = Snapshot()
    snapshot.apply(SnapshotChange(models={one.id: one for one in models}))
    return snapshot


def name_of(snapshot: Snapshot, asked: str) -> str | None:
    found = snapshot.model(asked)
    return None if found is None else found.name


def test_it_works() -> None:
    snapshot = Snapshot()
    change = SnapshotChange({1: ORGANIZATION}, {1: KEY}, {}, {1: model(1, "m")}, {"m": RATES})
    assert not change.is_empty
    snapshot.apply(change)
    assert snapshot.key(b"print") == KEY
    assert snapshot.organizations[1] is ORGANIZATION
    assert snapshot.model("m") == replace(model(1, "m"), rates=RATES)
    assert [one.name for one in snapshot.models()] == ["m"]


def test_a_key_that_is_changed_or_gone() -> None:
    snapshot = Snapshot()
    snapshot.apply(SnapshotChange(keys={1: KEY}))
    snapshot.apply(SnapshotChange(keys={1: changed(KEY, fingerprint=b"new", revoked=True)}))
    assert snapshot.key(b"print") is None
    assert snapshot.key(b"new").revoked  # type: ignore[union-attr]
    snapshot.apply(SnapshotChange(keys={1: None, 2: None}))
    assert snapshot.key(b"new") is None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("kimi", "kimi"),
        ("moonshot-auto", "exact"),
        ("moonshot-v1", "pattern"),
        ("moonshot-v1-8k", "longer"),
        ("moonshot-", "pattern"),
        ("moonshot", None),
        ("x/kimi", "tail"),
        ("claude-3-latest", "both"),
        ("claude-latest", None),
        ("claude--latest", "both"),
        ("Kimi", None),
        ("", None),
        ("off", None),
        ("off-alias", None),
        ("*", None),
    ],
)
def test_exact_names_win_over_aliases_and_those_over_the_longest_pattern(
    asked: str, found: str | None
) -> None:
    snapshot = of_models(
        model(1, "kimi"),
        model(2, "exact", "moonshot-auto", "kimi"),
        model(3, "pattern", "moonshot-*"),
        model(4, "longer", "moonshot-v1-*"),
        model(5, "tail", "*/kimi"),
        model(6, "both", "claude-*-latest"),
        model(7, "off", "off-alias", enabled=False),
    )
    assert name_of(snapshot, asked) == found


def test_models_are_listed_by_name_and_only_those_on_offer() -> None:
    snapshot = of_models(model(1, "b"), model(2, "a"), model(3, "c", enabled=False))
    assert [one.name for one in snapshot.models()] == ["a", "b"]


def test_a_price_finds_its_model_whichever_came_first() -> None:
    for changes in ([{"rates": {"m": RATES}}, {"models": {1: model(1, "m")}}],) * 2:
        snapshot = Snapshot()
        for change in changes:
            snapshot.apply(SnapshotChange(**change))  # type: ignore[arg-type]
        assert snapshot.model("m").rates is RATES  # type: ignore[union-attr]


def test_every_change_is_a_new_version() -> None:
    snapshot = Snapshot()
    snapshot.apply(SnapshotChange(keys={1: KEY}))
    snapshot.apply(SnapshotChange())
    assert snapshot.version == 2
    assert SnapshotChange().is_empty


def test_what_is_read_anew_and_is_the_same_stays_the_same_object() -> None:
    """What others have prepared for it stays prepared."""
    snapshot = Snapshot()
    whole = SnapshotChange({1: ORGANIZATION}, {1: KEY}, {}, {1: model(1, "m")}, {"m": RATES})
    snapshot.apply(whole)
    before = (snapshot.organizations[1], snapshot.key(b"print"), snapshot.model("m"))
    again = SnapshotChange(
        {1: changed(ORGANIZATION)}, {1: changed(KEY)}, {}, {1: model(1, "m")}, {"m": replace(RATES)}
    )
    snapshot.apply(again)
    after = (snapshot.organizations[1], snapshot.key(b"print"), snapshot.model("m"))
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_a_key_is_made_from_its_bytes_once_for_many_calls() -> None:
    snapshot = Snapshot()
    snapshot.apply(SnapshotChange(keys={1: KEY}))
    assert snapshot.key(b"print") is snapshot.key(b"print")


def test_made_keys_are_bounded_and_those_in_use_stay() -> None:
    snapshot = Snapshot()
    many = {number: changed(KEY, id=number, fingerprint=b"%032d" % number) for number in range(3 * RECENT)}
    snapshot.apply(SnapshotChange(keys=dict(many)))
    used = snapshot.key(many[0].fingerprint)
    for number in range(1, RECENT + 10):
        assert snapshot.key(many[number].fingerprint) == many[number]
    assert snapshot.key(many[0].fingerprint) is used
    for key in many.values():
        snapshot.key(key.fingerprint)
    assert len(snapshot._recent) + len(snapshot._before) <= 2 * RECENT


# A branch: brought up to date piece by piece while calls go on, then taken over in one step.


def anew(snapshot: Snapshot, *pieces: SnapshotChange) -> Snapshot:
    branch = snapshot.branch(anew=True)
    for piece in pieces:
        branch.apply(piece)
    for _ in branch.drop_unseen():
        pass
    return branch


def test_a_whole_that_is_read_anew_leaves_nothing_of_before() -> None:
    snapshot = Snapshot()
    snapshot.apply(
        SnapshotChange({1: ORGANIZATION}, {1: KEY}, {}, {1: model(1, "old", "alias")}, {"old": RATES})
    )
    branch = anew(snapshot, SnapshotChange(models={2: model(2, "new")}))
    assert snapshot.key(b"print") == KEY
    assert name_of(snapshot, "alias") == "old"
    for _ in snapshot.become(branch):
        pass
    assert (snapshot.key(b"print"), snapshot.organizations) == (None, {})
    assert [one.name for one in snapshot.models()] == ["new"]
    assert snapshot.model("alias") is None


def test_nothing_of_a_branch_is_seen_before_it_is_taken_over_and_then_all_of_it() -> None:
    snapshot = Snapshot()
    snapshot.apply(SnapshotChange({1: ORGANIZATION}, {1: KEY}, {}, {1: model(1, "m")}, {"m": RATES}))
    assert snapshot.key(b"print") == KEY
    branch = snapshot.branch()
    dearer = Rates.of(version=2, model_name="m", currency="USD", input="9", output="9")
    for piece in (
        SnapshotChange(organizations={1: changed(ORGANIZATION, enabled=False)}),
        SnapshotChange(models={1: model(1, "m", "alias")}),
        SnapshotChange(rates={"m": dearer}),
        SnapshotChange(keys={1: changed(KEY, revoked=True)}),
    ):
        branch.apply(piece)
        assert snapshot.key(b"print") == KEY
        assert snapshot.organizations[1] is ORGANIZATION
        assert snapshot.model("m").rates is RATES  # type: ignore[union-attr]
        assert snapshot.model("alias") is None
    version = snapshot.version
    snapshot.become(branch)
    assert snapshot.version > version
    assert snapshot.key(b"print").revoked  # type: ignore[union-attr]
    assert not snapshot.organizations[1].enabled
    assert snapshot.model("alias").rates is dearer  # type: ignore[union-attr]


def test_a_snapshot_that_is_changed_beside_its_branch() -> None:
    """A look-up brings the one in use further while everything is read anew: nothing is mixed."""
    snapshot = Snapshot()
    keys = {number: changed(KEY, id=number, fingerprint=b"%032d" % number) for number in range(5)}
    snapshot.apply(SnapshotChange(keys=dict(keys)))
    branch = snapshot.branch(anew=True)
    branch.apply(SnapshotChange(keys={number: changed(keys[number], rpm=1) for number in range(3)}))
    newer = SnapshotChange(keys={0: changed(keys[0], revoked=True), 4: None})
    snapshot.apply(newer)
    assert snapshot.key(keys[4].fingerprint) is None
    assert snapshot.key(keys[1].fingerprint).rpm is None  # type: ignore[union-attr]
    branch.apply(SnapshotChange(keys={number: keys[number] for number in (3, 4)}))
    for _ in branch.drop_unseen():
        pass
    branch.apply(newer)
    snapshot.become(branch)
    assert snapshot.key(keys[0].fingerprint).revoked  # type: ignore[union-attr]
    assert snapshot.key(keys[1].fingerprint).rpm == 1  # type: ignore[union-attr]
    assert snapshot.key(keys[4].fingerprint) is None
    assert snapshot.key_count == 4


def test_a_branch_that_came_to_nothing_leaves_all_as_it_was() -> None:
    snapshot = Snapshot()
    snapshot.apply(SnapshotChange(keys={1: KEY}))
    branch = snapshot.branch(anew=True)
    branch.apply(SnapshotChange(keys={1: changed(KEY, revoked=True)}))
    for _ in branch.free():
        pass
    assert snapshot.key(b"print") == KEY
    snapshot.apply(SnapshotChange(keys={1: changed(KEY, rpm=2)}))
    assert snapshot.key(b"print").rpm == 2  # type: ignore[union-attr]
