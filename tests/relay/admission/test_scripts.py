"""The parts of the Lua scripts that can be tried alone, on a real server."""

import doctest
import hashlib
from pathlib import Path

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.admission import scripts
from relay.admission.scripts import BOOK, INITIALISE, SWEEP, Script, hold_keys, window_key

_MONEY = (Path(scripts.__file__).parent / "lua" / "money.lua").read_text()
_SUM = """
local high, low = split(ARGV[1])
local more_high, more_low = split(ARGV[2])
return join(add(high, low, more_high, more_low, tonumber(ARGV[3])))
"""
amounts = st.one_of(
    st.integers(-(10**22), 10**22),
    st.integers(-3, 3).flatmap(
        lambda n: st.sampled_from([10**9, 10**15, 2**53, 2**63]).map(lambda b: n * b + n)
    ),
    st.sampled_from([0, 1, -1, 10**9 - 1, -(10**9), 10**15 - 1, 10**15, -(10**15), 2**53 + 1, 2**63 - 1]),
)


@pytest.fixture(scope="module")
def calculator(server) -> redis.Redis:
    with redis.Redis.from_url(server.url) as client:
        yield client


def test_the_examples_hold() -> None:
    assert doctest.testmod(scripts).failed == 0


@pytest.mark.parametrize("script", [BOOK, SWEEP, INITIALISE])
def test_the_server_knows_a_script_by_our_name(script: Script, client: redis.Redis) -> None:
    assert client.script_load(script.text) == script.sha == hashlib.sha1(script.text.encode()).hexdigest()


def test_all_keys_of_an_organization_carry_its_hash_tag() -> None:
    keys = [*hold_keys(7), window_key(7, "o"), window_key(7, "k1")]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith("{org:7}:") for key in keys)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(a=amounts, b=amounts)
def test_sums_and_differences_are_exact_far_beyond_doubles(calculator: redis.Redis, a: int, b: int) -> None:
    assert int(calculator.eval(_MONEY + _SUM, 0, a, b, 1)) == a + b
    assert int(calculator.eval(_MONEY + _SUM, 0, a, b, -1)) == a - b


def test_an_amount_is_written_as_it_was_read(calculator: redis.Redis) -> None:
    for amount in (
        0,
        7,
        -7,
        10**9,
        -(10**9),
        999_999 * 10**9 + 999_999_999,
        10**15,
        -(10**15) - 1,
        2**63,
        -(2**70),
    ):
        text = calculator.eval(_MONEY + "return join(split(ARGV[1]))", 0, amount)
        assert text == str(amount).encode()
