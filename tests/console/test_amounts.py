import doctest
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import amounts
from console.amounts import decimal_string, nano_of


def test_the_doctests_hold():
    assert doctest.testmod(amounts).failed == 0


@given(st.integers(-(2**63), 2**63))
def test_a_decimal_string_is_exact_and_has_no_idle_zeros(nano):
    text = decimal_string(nano)

    assert Decimal(text) == Decimal(nano).scaleb(-9)
    assert "." not in text or not text.endswith(("0", "."))
    assert text != "-0"


@given(st.integers(0, 9_223_372_035 * 10**9))
def test_what_was_written_is_read_back(nano):
    assert nano_of(decimal_string(nano)) == nano


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "+1", "1e3", "1e999999", "nan", "0.0000000001", "9223372037", "1,5", "٣"]
)
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        nano_of(text)
