import pytest

from accounts.keys import display_prefix, fingerprint, fingerprints, is_legal_value, make_key

PEPPER, OLD = b"p" * 32, b"o" * 32


def test_a_new_key_is_legal_and_never_the_same() -> None:
    first, second = make_key(), make_key()
    assert is_legal_value(first)
    assert first != second
    assert len(first) == len("sk-yz-") + 8 + 1 + 43


def test_what_is_shown_of_a_key_recognises_it_and_does_not_give_it_away() -> None:
    key = make_key()
    assert display_prefix(key) == key[:14]
    assert display_prefix("imported-key-of-somebody") == "imported"


@pytest.mark.parametrize("value", ["v" * 20, "v" * 200, "!~" * 20])
def test_20_to_200_visible_characters_are_legal(value: str) -> None:
    assert is_legal_value(value)


@pytest.mark.parametrize(
    "value", ["v" * 19, "v" * 201, "with space in the middle", "é" * 20, "v" * 20 + "\n"]
)
def test_anything_else_is_not(value: str) -> None:
    assert not is_legal_value(value)


def test_a_fingerprint_depends_on_key_and_pepper() -> None:
    assert fingerprint(b"a", PEPPER) == fingerprint(b"a", PEPPER)
    assert len({fingerprint(b"a", PEPPER), fingerprint(b"b", PEPPER), fingerprint(b"a", OLD)}) == 3


def test_after_a_rotation_older_keys_are_still_found() -> None:
    assert fingerprint(b"a", OLD) in fingerprints(b"a", [PEPPER, OLD])
