import pytest

from relay.state.sealing import SealError, is_sealed_with_newest, seal, unseal, upstream_subject

OLD, NEW = b"o" * 32, b"n" * 32
KIMI = upstream_subject("kimi-a")


def test_it_works() -> None:
    sealed = seal("sk-secret-密".encode(), [NEW], associated=KIMI)
    assert unseal(sealed, [NEW], associated=KIMI) == "sk-secret-密".encode()
    assert b"secret" not in sealed


def test_the_same_text_never_seals_alike() -> None:
    assert seal(b"x", [NEW], associated=KIMI) != seal(b"x", [NEW], associated=KIMI)


def test_after_a_rotation_old_values_open_and_new_ones_use_the_newest_key() -> None:
    before = seal(b"x", [OLD], associated=KIMI)
    after = seal(b"x", [NEW, OLD], associated=KIMI)
    assert unseal(before, [NEW, OLD], associated=KIMI) == b"x"
    assert not is_sealed_with_newest(before, [NEW, OLD])
    assert is_sealed_with_newest(after, [NEW, OLD])
    with pytest.raises(SealError, match="not among"):
        unseal(after, [OLD], associated=KIMI)


def test_a_value_moved_to_another_upstream_does_not_open() -> None:
    sealed = seal(b"x", [NEW], associated=KIMI)
    with pytest.raises(SealError, match="kimi-b"):
        unseal(sealed, [NEW], associated=upstream_subject("kimi-b"))


def test_every_changed_byte_is_noticed() -> None:
    sealed = seal(b"secret", [NEW], associated=KIMI)
    for index in range(len(sealed)):
        changed = sealed[:index] + bytes([sealed[index] ^ 1]) + sealed[index + 1 :]
        with pytest.raises(SealError):
            unseal(changed, [NEW], associated=KIMI)


@pytest.mark.parametrize("value", [b"", b"\x01", b"plain text that was never sealed by anybody"])
def test_what_was_never_sealed_is_refused(value: bytes) -> None:
    with pytest.raises(SealError, match="not a sealed value"):
        unseal(value, [NEW], associated=KIMI)


@pytest.mark.parametrize("keys", [[], [b"short"]])
def test_sealing_without_a_good_key_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(SealError, match="32 bytes"):
        seal(b"x", keys, associated=KIMI)
