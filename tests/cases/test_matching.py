"""The matchers and pointers of the cases."""

from typing import Any

import pytest

from tests.cases.harness.matching import MISSING, mismatches, point, unmatched

DOCUMENT = {"a": [1, {"b/c": "x", "~": None}], "": 5, "-1": 6}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/", 5),
        ("/a/0", 1),
        ("/a/-1/b~1c", "x"),
        ("/a/-2", 1),
        ("/a/1/~0", None),
        ("/-1", 6),
        ("/a/2", MISSING),
        ("/a/-3", MISSING),
        ("/a/x", MISSING),
        ("/b", MISSING),
        ("/a/0/x", MISSING),
    ],
)
def test_pointers(pointer: str, value: Any) -> None:
    assert point(DOCUMENT, pointer) == value


HOLDING = [
    (5, 5), (5, 5.0), ("x", "x"), (None, None), (True, True), ([1, {"a": 2}], [1.0, {"a": 2}]), ({}, {}),
    ({"$exists": True}, None), ({"$exists": False}, MISSING), ({"$absent": True}, MISSING), ({"$null": True}, MISSING),
    ({"$null": True}, None), ({"$type": "string"}, ""), ({"$type": "number"}, 1.5), ({"$type": "integer"}, 2.0),
    ({"$type": "boolean"}, False), ({"$type": "object"}, {}), ({"$type": "array"}, []), ({"$type": "null"}, None),
    ({"$regex": "b+"}, "abbc"), ({"$contains": "b"}, "abc"), ({"$contains": 2}, [1, 2]),
    ({"$contains": {"$min": 2}}, [1, 2]), ({"$contains": {"a": {"$type": "string"}}}, {"a": "x", "b": 1}),
    ({"$json": {"a": 1}}, '{ "a" : 1 }'), ({"$len": 2}, "ab"), ({"$len": 0}, []), ({"$min": 1, "$max": 3}, 2),
    ({"$min": 1}, 1), ({"$max": 3}, 3), ({"$in": [1, "a"]}, "a"), ({"$not": 5}, 6), ({"$not": 5}, MISSING),
    ({"$all": [{"$min": 1}, {"$not": 2}]}, 3), ({"$any": [1, {"$type": "string"}]}, "x"),
]  # fmt: skip
FAILING = [
    (5, "5"), (1, True), (True, 1), (0, False), ("x", MISSING), (None, MISSING), ([1], [1, 2]), ({"a": 1}, {"a": 1, "b": 2}),
    ({"$exists": True}, MISSING), ({"$exists": False}, None), ({"$absent": True}, None), ({"$null": True}, 0),
    ({"$type": "number"}, True), ({"$type": "integer"}, 1.5), ({"$type": "string"}, MISSING), ({"$regex": "^b"}, "ab"),
    ({"$regex": "1"}, 1), ({"$contains": "x"}, "abc"), ({"$contains": "x"}, MISSING), ({"$contains": {"a": 1}}, {"b": 1}),
    ({"$json": 1}, "x"), ({"$json": 1}, 1), ({"$len": 1}, 5), ({"$min": 1}, 0), ({"$max": 3}, "2"), ({"$min": 1}, True),
    ({"$in": [1]}, True), ({"$not": 5}, 5), ({"$all": [1, 2]}, 1), ({"$any": []}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("matcher", "value"), HOLDING)
def test_what_holds(matcher: Any, value: Any) -> None:
    assert unmatched(matcher, value) is None


@pytest.mark.parametrize(("matcher", "value"), FAILING)
def test_what_does_not(matcher: Any, value: Any) -> None:
    assert unmatched(matcher, value) is not None


def test_an_unknown_matcher_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown"):
        unmatched({"$like": 1}, 1)


def test_every_pointer_has_to_hold() -> None:
    assert mismatches({"/a/0": 1, "/b": {"$absent": True}}, DOCUMENT) == []
    assert len(mismatches({"/a/0": 2, "/b": 1, "": {"$len": 3}}, DOCUMENT)) == 2
