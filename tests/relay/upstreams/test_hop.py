"""The header that stops loops: signed, recognised, passed on, and of no use to anybody else."""

import doctest
from base64 import urlsafe_b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.upstreams import hop
from relay.upstreams.hop import MOST, Hops, hops_in

OURS, THEIRS = Hops([b"ours"]), Hops([b"theirs"])


def test_the_doctests_hold() -> None:
    assert doctest.testmod(hop).failed == 0


def test_every_process_of_an_installation_makes_and_knows_the_same() -> None:
    assert Hops([b"ours"]).hop("1") == OURS.hop("1")
    assert Hops([b"ours"]).is_ours(OURS.hop("1"))


def test_a_hop_from_before_the_secret_was_changed_is_still_known() -> None:
    renewed = Hops([b"new", b"ours"])
    assert renewed.is_ours(OURS.hop("1"))
    assert renewed.is_ours(renewed.hop("1"))
    assert not OURS.is_ours(renewed.hop("1"))


def test_two_upstreams_cannot_tell_that_one_relay_calls_them() -> None:
    one, two = urlsafe_b64decode(OURS.hop("1")), urlsafe_b64decode(OURS.hop("2"))
    assert not any(one[at : at + 3] in two for at in range(len(one) - 2))


@given(st.binary(max_size=40) | st.text("abcAZ09_-", min_size=32, max_size=32).map(str.encode))
def test_what_somebody_invents_is_not_ours(value: bytes) -> None:
    assert not OURS.is_ours(value)


@pytest.mark.parametrize("at", range(32))
def test_a_hop_of_which_a_letter_is_changed_is_not_ours(at: int) -> None:
    made = bytearray(OURS.hop("1"))
    made[at] = ord("A") if made[at] != ord("A") else ord("B")
    assert not OURS.is_ours(bytes(made))


def test_hops_are_read_in_their_order_from_one_line_or_several() -> None:
    a, b, c = OURS.hop("1"), THEIRS.hop("1"), THEIRS.hop("2")
    assert hops_in([]) == []
    assert hops_in([a, b + b" ,\t" + c]) == [a, b, c]


@pytest.mark.parametrize(
    "junk", [b"", b",", b"short", b"x" * 33, b"\xff" * 32, b"a" * 31 + b"\n", b"acme", b"a" * 5000]
)
def test_nothing_else_is_passed_on(junk: bytes) -> None:
    hop_ = THEIRS.hop("1")
    assert hops_in([junk + b"," + hop_, junk]) == [hop_]


def test_only_so_many_are_kept_and_the_oldest_go_first() -> None:
    many = [THEIRS.hop(str(number)) for number in range(40)]
    assert hops_in([b",".join(many)]) == many[-MOST:]
