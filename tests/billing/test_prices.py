from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from accounts.errors import Invalid, NotAllowed
from accounts.permissions import SYSTEM, Acting
from billing.models import Price
from billing.prices import PriceTerms, price_in_force, prices_in_force, set_price, terms_of

pytestmark = pytest.mark.django_db
TERMS = PriceTerms(currency="CNY", input=Decimal(4), output=Decimal(16), cached_input=Decimal("0.4"))


def test_a_price_is_in_force_from_its_moment_on() -> None:
    price, is_new = set_price(acting=SYSTEM, model_name="kimi", terms=TERMS)
    assert is_new
    assert price_in_force("kimi") == price
    assert price_in_force("kimi", timezone.now() - timedelta(hours=1)) is None
    assert terms_of(price) == TERMS


def test_the_same_terms_make_no_new_version() -> None:
    first, _ = set_price(acting=SYSTEM, model_name="kimi", terms=TERMS)
    same = PriceTerms(
        currency="CNY", input=Decimal("4.000"), output=Decimal("16"), cached_input=Decimal("0.40")
    )
    assert set_price(acting=SYSTEM, model_name="kimi", terms=same) == (first, False)


@pytest.mark.parametrize(
    "changed",
    [{"input": Decimal(5)}, {"cached_input": None}, {"currency": "USD"}, {"discount": Decimal("0.9")}],
)
def test_other_terms_are_a_new_version_and_the_old_one_stays(changed: dict[str, object]) -> None:
    from dataclasses import replace

    old, _ = set_price(acting=SYSTEM, model_name="kimi", terms=TERMS)
    new, is_new = set_price(acting=SYSTEM, model_name="kimi", terms=replace(TERMS, **changed))
    assert is_new
    assert price_in_force("kimi") == new != old
    assert terms_of(Price.objects.get(pk=old.pk)) == TERMS


def test_each_model_has_its_own_price_in_force() -> None:
    first, _ = set_price(acting=SYSTEM, model_name="a", terms=TERMS)
    second, _ = set_price(acting=SYSTEM, model_name="b", terms=TERMS)
    assert list(prices_in_force()) == [first, second]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"input": Decimal(-1)}, "input"),
        ({"output": Decimal(1_000_001)}, "output"),
        ({"cache_write_1h": Decimal("0.0000000000001")}, "cache_write_1h"),
        ({"discount": Decimal(101)}, "discount"),
        ({"currency": "yuan"}, "currency"),
    ],
)
def test_a_price_that_cannot_be_is_refused(changed: dict[str, object], field: str) -> None:
    from dataclasses import replace

    with pytest.raises(Invalid) as caught:
        set_price(acting=SYSTEM, model_name="kimi", terms=replace(TERMS, **changed))
    assert caught.value.field == field


@pytest.mark.parametrize("changed", [{"input": -1}, {"read_explicit": 1_000_001}, {"discount": -1}])
def test_the_database_refuses_it_too(changed: dict[str, int]) -> None:
    with pytest.raises(DatabaseError, match="price_"), transaction.atomic():
        Price.objects.create(**{"model_name": "kimi", "currency": "CNY", "input": 1, "output": 1, **changed})


def test_only_operators_set_prices() -> None:
    with pytest.raises(NotAllowed):
        set_price(acting=Acting("ann", frozenset(), 1), model_name="kimi", terms=TERMS)
