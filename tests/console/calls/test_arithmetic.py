from decimal import Decimal

import pytest

from accounts import scope
from billing.models import UsageRecord
from console.calls.arithmetic import explain_amount

pytestmark = pytest.mark.django_db


def call(cast, **fields) -> UsageRecord:
    record = cast.call(**fields)
    with scope.organization(cast.acme.pk):
        return UsageRecord.objects.get(id=record.id)


def test_the_lines_multiply_out_to_the_amount(cast):
    bill = explain_amount(call(cast))

    assert [(line.name, line.tokens, line.rate, line.subtotal) for line in bill.breakdown.lines] == [
        ("input", 1000, Decimal("4"), Decimal("0.004")),
        ("cached_input", 3000, Decimal("1"), Decimal("0.003")),
        ("output", 200, Decimal("16"), Decimal("0.0032")),
    ]
    assert bill.breakdown.list_total == Decimal("0.0102")
    assert bill.breakdown.total == Decimal("0.00867")
    assert bill.agrees


def test_an_ending_that_is_not_paid_for_is_told_apart(cast):
    assert not explain_amount(call(cast, status="upstream_error", amount_nano=0)).agrees


def test_explicitly_cached_tokens_are_named_so(cast):
    names = [line.name for line in explain_amount(call(cast, cache_type="ephemeral")).breakdown.lines]

    assert "read_explicit" in names


@pytest.mark.parametrize(
    "fields",
    [
        {"price_version": None},
        {"price_version": 10**9},
        {"uncached_input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0},
    ],
)
def test_without_a_price_or_tokens_there_is_nothing_to_multiply(cast, fields):
    assert explain_amount(call(cast, **fields)) is None
