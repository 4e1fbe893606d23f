import doctest
from decimal import ROUND_HALF_EVEN, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing import pricing
from billing.pricing import Rates, TokenCounts, amount_nano, cost_nano, hold_nano, is_free, lines, scaled

EXACT = Context(prec=200, rounding=ROUND_HALF_EVEN)


def rates(**given: str | None) -> Rates:
    values = {"input": "2.00", "output": "10.00", **given}
    return Rates.of(version=1, model_name="m", currency="USD", **values)


# The prices of the worked examples: read 0.20, writes 2.50 (5 m, 30 m) and 4.00 (1 h).
EXAMPLE = rates(cached_input="0.20", cache_write_5m="2.50", cache_write_30m="2.50", cache_write_1h="4.00")

WORKED = {
    "chat 1": (TokenCounts(86, 1920, output=300, reasoning=128), "0.003556"),
    "chat 2": (TokenCounts(160, 4096, cache_write_30m=6144, output=812, reasoning=512), "0.0246192"),
    "kimi": (TokenCounts(408, 14592, output=620), "0.0099344"),
    "deepseek": (TokenCounts(80, 17920, output=219, reasoning=205), "0.005934"),
    "xai": (TokenCounts(360, 640, output=450, reasoning=400), "0.005348"),
    "qwen explicit": (TokenCounts(952, cache_write_5m=2048, output=100), "0.008024"),
    "responses 1": (TokenCounts(256, 4864, output=900, reasoning=640), "0.0104848"),
    "responses 2": (TokenCounts(82, 40960, cache_write_30m=7168, output=1500, reasoning=1024), "0.041276"),
    "anthropic 1": (TokenCounts(36, 11272, cache_write_5m=12206, output=410, reasoning=150), "0.0369414"),
    # without its three web searches, which are billed apart at 0.01 each
    "anthropic 2": (TokenCounts(120, 98304, 2000, 0, 4000, 1500), "0.0559008"),
    "gemini 1": (TokenCounts(3808, 8192, output=1250, reasoning=900), "0.0217544"),
    "gemini 3": (TokenCounts(2800, output=300, reasoning=100), "0.0086"),
}


@pytest.mark.parametrize("case", WORKED)
def test_worked_examples_cost_what_was_computed_by_hand(case: str) -> None:
    tokens, expected = WORKED[case]
    assert amount_nano(EXAMPLE, tokens) == int(Decimal(expected) * 10**9)


def test_the_discount_is_applied_before_the_one_rounding() -> None:
    # 1 token at 0.0010 per million is one nano-unit; 85 % of it rounds back to one, and half of it to even:
    # none.
    one = rates(input="0.001", discount="0.85")
    half = rates(input="0.001", discount="0.5")
    assert amount_nano(one, TokenCounts(1)) == 1
    assert amount_nano(half, TokenCounts(1)) == 0
    assert amount_nano(half, TokenCounts(3)) == 2
    assert amount_nano(half, TokenCounts(5)) == 2


def test_a_missing_class_costs_what_input_costs() -> None:
    plain = rates()
    for tokens in (
        TokenCounts(cached_input=1000),
        TokenCounts(cache_write_5m=1000),
        TokenCounts(cache_write_30m=1000),
        TokenCounts(cache_write_1h=1000),
        TokenCounts(cached_input=1000, explicit_cache=True),
    ):
        assert amount_nano(plain, tokens) == amount_nano(plain, TokenCounts(1000)) == 2_000_000


def test_a_written_zero_is_free() -> None:
    assert amount_nano(rates(cached_input="0"), TokenCounts(cached_input=1000)) == 0


def test_explicitly_cached_tokens_have_their_own_rate() -> None:
    both = rates(cached_input="0.40", read_explicit="0.20")
    assert amount_nano(both, TokenCounts(cached_input=1000)) == 400_000
    assert amount_nano(both, TokenCounts(cached_input=1000, explicit_cache=True)) == 200_000
    assert (
        amount_nano(rates(cached_input="0.40"), TokenCounts(cached_input=1000, explicit_cache=True))
        == 400_000
    )


def test_reasoning_is_part_of_output_and_not_charged_again() -> None:
    assert amount_nano(EXAMPLE, TokenCounts(output=500, reasoning=400)) == amount_nano(
        EXAMPLE, TokenCounts(output=500)
    )


def test_a_count_below_zero_never_lowers_the_amount() -> None:
    assert amount_nano(EXAMPLE, TokenCounts(-500, output=100)) == amount_nano(
        EXAMPLE, TokenCounts(output=100)
    )


def test_the_upstreams_cost_knows_no_discount_but_its_multiplier() -> None:
    discounted = rates(discount="0.5")
    assert amount_nano(discounted, TokenCounts(1_000_000)) == 1_000_000_000
    assert cost_nano(discounted, TokenCounts(1_000_000), scaled("1.2", 6)) == 2_400_000_000


def test_the_hold_takes_the_dearest_input_class() -> None:
    assert hold_nano(EXAMPLE, 1000, 0) == 4_000_000


def test_with_free_input_the_hold_is_exactly_the_ceiling_at_the_output_price() -> None:
    assert hold_nano(rates(input="0"), 123_456, 8192) == 8192 * 10_000


def test_free_means_every_class_is_zero_or_the_discount_is() -> None:
    assert is_free(rates(input="0", output="0"))
    assert is_free(rates(discount="0"))
    assert not is_free(rates(input="0"))
    assert not is_free(rates(input="0", output="0", cache_write_1h="0.1"))


def test_lines_leave_out_what_was_not_used() -> None:
    shown = lines(EXAMPLE, TokenCounts(86, 1920, output=300, reasoning=128))
    assert [(line.name, line.tokens, line.rate, line.subtotal) for line in shown.lines] == [
        ("input", 86, Decimal("2"), Decimal("0.000172")),
        ("cached_input", 1920, Decimal("0.2"), Decimal("0.000384")),
        ("output", 300, Decimal("10"), Decimal("0.003")),
    ]
    assert (shown.list_total, shown.discount, shown.total) == (
        Decimal("0.003556"),
        Decimal(1),
        Decimal("0.003556"),
    )
    assert str(shown.lines[2].rate) == "10"


@pytest.mark.parametrize("value", ["-1", "NaN", "Infinity", "abc", "", "0.0000000000001"])
def test_a_bad_price_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|below zero"):
        rates(input=value)


def test_doctests() -> None:
    assert doctest.testmod(pricing).failed == 0


prices = st.decimals(min_value=0, max_value=1_000_000, places=12)
counts = st.integers(min_value=0, max_value=10**9)
tokens_of = st.builds(
    TokenCounts, counts, counts, counts, counts, counts, counts, explicit_cache=st.booleans()
)


@st.composite
def any_rates(draw: st.DrawFn) -> Rates:
    optional = st.none() | prices
    return Rates.of(
        version=1,
        model_name="m",
        currency="CNY",
        input=draw(prices),
        output=draw(prices),
        cached_input=draw(optional),
        cache_write_5m=draw(optional),
        cache_write_30m=draw(optional),
        cache_write_1h=draw(optional),
        read_explicit=draw(optional),
        discount=draw(st.decimals(min_value=0, max_value=100, places=6)),
    )


@given(any_rates(), tokens_of)
def test_the_parts_explain_the_whole(rates: Rates, tokens: TokenCounts) -> None:
    shown = lines(rates, tokens)
    total = Decimal(0)
    for line in shown.lines:
        assert EXACT.divide(EXACT.multiply(Decimal(line.tokens), line.rate), Decimal(10**6)) == line.subtotal
        total = EXACT.add(total, line.subtotal)
    assert total == shown.list_total
    exact = EXACT.multiply(total, shown.discount)
    assert exact.quantize(Decimal("1e-9"), context=EXACT) == shown.total
    assert EXACT.scaleb(shown.total, 9) == amount_nano(rates, tokens)


@given(any_rates(), tokens_of)
def test_no_bill_is_above_its_hold(rates: Rates, tokens: TokenCounts) -> None:
    assert amount_nano(rates, tokens) <= hold_nano(rates, tokens.input, tokens.output)


@given(any_rates(), tokens_of, st.decimals(min_value=0, max_value=1000, places=6))
def test_the_cost_is_the_list_price_times_the_multiplier(
    rates: Rates, tokens: TokenCounts, factor: Decimal
) -> None:
    exact = EXACT.multiply(lines(rates, tokens).list_total, factor)
    expected = exact.quantize(Decimal("1e-9"), context=EXACT)
    assert cost_nano(rates, tokens, scaled(factor, 6)) == EXACT.scaleb(expected, 9)
