"""What can be asked of the limit store."""

import pytest

from relay.admission.limits import LevelLimits, LimitKind, OpenHold, PermitRequest

ORGANIZATION = LevelLimits("o", balance_nano=-5, budget_nano=2**63 - 1, rpm=0, concurrency=3)


def test_a_level_knows_its_limits() -> None:
    assert [ORGANIZATION.limit(kind) for kind in LimitKind] == [-5, 2**63 - 1, 3, 0]
    with pytest.raises(KeyError):
        LevelLimits("o").limit(LimitKind.RPM)


def test_levels_with_equal_limits_are_equal() -> None:
    assert LevelLimits("o", rpm=1) == LevelLimits("o", rpm=1)
    assert LevelLimits("o", rpm=1) != LevelLimits("o", concurrency=1)


@pytest.mark.parametrize("name", ["", " ", "a b", "é", "a\n", "epoch", "x" * 65])
def test_a_level_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        LevelLimits(name)


@pytest.mark.parametrize(
    "limits",
    [
        {"balance_nano": 2**63},
        {"budget_nano": -(2**63)},
        {"rpm": -1},
        {"concurrency": 2**31},
        {"balance_nano": 0.5},
    ],
)
def test_a_limit_out_of_range_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        LevelLimits("o", **limits)


@pytest.mark.parametrize(
    "wrong",
    [
        {"call_id": ""},
        {"call_id": "x" * 65},
        {"call_id": "\ud800"},
        {"hold_nano": 1.5},
        {"hold_nano": -1},
        {"hold_nano": 2**63},
        {"lease_s": 0},
        {"lease_s": float("nan")},
        {"lease_s": 100_000},
        {"levels": ()},
        {"levels": (ORGANIZATION, LevelLimits("o"))},
        {"levels": tuple(LevelLimits(f"k{n}") for n in range(9))},
    ],
)
def test_a_request_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    right = {"organization_id": 1, "call_id": "c", "hold_nano": 1, "lease_s": 1, "levels": (ORGANIZATION,)}
    PermitRequest(**right)
    with pytest.raises(ValueError, match=r"call id|amount|lease|levels"):
        PermitRequest(**(right | wrong))


@pytest.mark.parametrize(
    "wrong",
    [{"call_id": ""}, {"hold_nano": -1}, {"levels": ()}, {"levels": ("o", "o")}, {"levels": ("o p",)}],
)
def test_an_announced_hold_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"call id|amount|level"):
        OpenHold(**({"call_id": "c", "hold_nano": 1, "levels": ("o",)} | wrong))
