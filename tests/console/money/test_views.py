import re
import uuid

import pytest

from accounts import scope
from accounts.permissions import SYSTEM
from billing.ledger import adjust, top_up
from console.money import held, queries

pytestmark = pytest.mark.django_db


def book(cast, count: int) -> None:
    with scope.organization(cast.acme.pk):
        for n in range(count):
            top_up(
                acting=SYSTEM,
                organization=cast.acme,
                amount_nano=10**9,
                reference=uuid.uuid4(),
                memo=f"transfer {n}",
            )


def test_the_page_shows_balance_held_and_what_is_left(cast, signed_in, store):
    store.hset(f"{{org:{cast.acme.pk}}}:use", mapping={"epoch": 1, "o": "1 2500000000 1"})

    context = signed_in("fay").get("/money/").context

    assert (context["balance"], context["held"], context["available"]) == (
        100 * 10**9,
        2_500_000_000,
        97_500_000_000,
    )


def test_with_the_store_away_the_page_says_so_and_still_shows_the_balance(cast, signed_in, settings):
    settings.LIMITS_REDIS_URL = "redis://127.0.0.1:1/0"

    response = signed_in("fay").get("/money/")

    assert (response.context["balance"], response.context["held"]) == (100 * 10**9, None)
    assert "does not answer" in response.content.decode()


def test_postings_are_paged_newest_first_with_the_balance_after_each(cast, signed_in, store):
    book(cast, 60)
    browser = signed_in("ann")

    first = browser.get("/money/").context
    second = browser.get(first["next_url"]).context

    rows = [*first["page"].postings, *second["page"].postings]
    assert [row.balance_nano for row in rows] == [(160 - n) * 10**9 for n in range(61)]
    assert rows[0].memo == "transfer 59"
    assert rows[-1].kind == "opening"
    assert second["next_url"] == ""


def test_kinds_can_be_told_apart(cast, signed_in, store):
    with scope.organization(cast.acme.pk):
        adjust(
            acting=SYSTEM,
            organization=cast.acme,
            amount_nano=-(10**9),
            reference=uuid.uuid4(),
            memo="a correction",
        )

    credits = signed_in("ann").get("/money/", {"show": "credits"})

    assert [row.kind for row in credits.context["page"].postings] == ["adjustment", "opening"]
    assert "\u22121.0000" in credits.content.decode()
    assert signed_in("ann").get("/money/", {"show": "usage"}).context["page"].postings == []


def test_a_changed_cursor_shows_no_posting(cast, signed_in, store):
    response = signed_in("ann").get("/money/", {"cursor": "1"})

    assert response.context["page"].postings == []
    assert "does not exist" in response.content.decode()


def test_every_amount_carries_its_currency(cast, signed_in, store):
    page = signed_in("ann").get("/money/").content.decode()

    amounts = re.findall(r'class="money"[^>]*>(.*?)</span></span>', page)
    assert amounts
    assert all("CNY" in amount for amount in amounts)


def test_the_list_costs_the_same_number_of_queries(cast, signed_in, store, django_assert_max_num_queries):
    book(cast, 40)
    browser = signed_in("ann")
    browser.get("/money/")

    with django_assert_max_num_queries(12):
        browser.get("/money/")


def test_another_organizations_wallet_is_not_read(cast):
    with scope.organization(cast.bolt.pk):
        assert queries.balance_nano(cast.acme.pk) == 0
        assert queries.list_postings(cast.acme.pk, size=10).postings == []


def test_use_is_none_when_the_store_does_not_say(cast, settings, store):
    assert held.use_of(cast.acme.pk, held.ORGANIZATION) == held.Use(0, 0, 0)
    store.hset(f"{{org:{cast.acme.pk}}}:use", mapping={"epoch": 1, "o": "nonsense"})
    assert held.use_of(cast.acme.pk, held.ORGANIZATION) is None
    settings.LIMITS_REDIS_URL = "redis://127.0.0.1:1/0"
    assert held.use_of(cast.acme.pk, held.ORGANIZATION) is None
