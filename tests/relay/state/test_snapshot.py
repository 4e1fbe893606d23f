"""What the data plane looks up in memory: keys by fingerprint, models by name, alias and pattern."""

from dataclasses import replace

import pytest

from billing.pricing import Rates
from relay.state.snapshot import KeyState, ModelState, OrganizationState, Snapshot, SnapshotChange

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
    assert snapshot.key(b"print") is KEY
    assert snapshot.organizations[1] is ORGANIZATION
    assert snapshot.model("m") == replace(model(1, "m"), rates=RATES)
    assert [one.name for one in snapshot.models()] == ["m"]


def test_a_key_that_is_changed_or_gone() -> None:
    snapshot = Snapshot()
    snapshot.apply(SnapshotChange(keys={1: KEY}))
    snapshot.apply(SnapshotChange(keys={1: replace(KEY, fingerprint=b"new", revoked=True)}))
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


def test_a_whole_that_is_read_anew_leaves_nothing_of_before() -> None:
    snapshot = Snapshot()
    snapshot.apply(
        SnapshotChange({1: ORGANIZATION}, {1: KEY}, {}, {1: model(1, "old", "alias")}, {"old": RATES})
    )
    snapshot.replace_all(SnapshotChange(models={2: model(2, "new")}))
    assert (snapshot.key(b"print"), snapshot.organizations) == (None, {})
    assert [one.name for one in snapshot.models()] == ["new"]
    assert snapshot.model("alias") is None
