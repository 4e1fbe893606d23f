import threading
from collections.abc import Iterator

import pytest
from django.db import connection

from accounts import scope
from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.models import Organization
from accounts.permissions import OF_ROLE, SYSTEM, Acting
from billing.models import LedgerEntry, Posting
from billing.top_ups import TopUp, book_top_up, read_amount
from gateway import env
from tests.fakes.tables import empty_tables


@pytest.fixture
def wallet(db: None) -> Iterator[Organization]:
    with scope.site("test"):
        yield Organization.objects.create(name="wallet", title="Wallet", currency="CNY")


def book(wallet: Organization, amount: str = "100.00", **given: str) -> TopUp:
    return book_top_up(
        acting=SYSTEM, organization=wallet, amount=amount, **{"currency": "CNY", "key": "transfer-7", **given}
    )


def test_it_works(wallet: Organization) -> None:
    booked = book(wallet, "100.00", note=" transfer 7 ")

    assert (booked.amount_nano, booked.balance_nano, booked.is_new) == (100 * 10**9, 100 * 10**9, True)
    assert (booked.posting.kind, booked.posting.memo) == ("top_up", "transfer 7")
    entries = LedgerEntry.objects.filter(posting=booked.posting).values_list(
        "account", "amount_nano", "currency"
    )
    assert set(entries) == {("wallet", 100 * 10**9, "CNY"), ("received", -100 * 10**9, "CNY")}


def test_the_same_key_books_once(wallet: Organization) -> None:
    first, second = book(wallet), book(wallet, "100")

    assert (second.posting, second.is_new, second.balance_nano) == (first.posting, False, 100 * 10**9)
    assert book(wallet, key="transfer-8").is_new
    assert Posting.objects.count() == 2


def test_a_key_with_another_amount_is_a_conflict(wallet: Organization) -> None:
    book(wallet)
    with pytest.raises(Conflict) as caught:
        book(wallet, "100.01")
    assert caught.value.field == "key"


def test_a_key_is_one_organizations_own(wallet: Organization) -> None:
    other = Organization.objects.create(name="other", title="Other", currency="CNY")

    assert book(wallet).is_new
    assert book(other).is_new


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("0", "above 0"),
        ("0.000000000", "above 0"),
        ("-5", "above 0"),
        ("0.0000000001", "at most 9 digits"),
        ("1000000000.01", "slip"),
        ("9" * 40, "slip"),
        ("", "plain decimal"),
        ("1e3", "plain decimal"),
        ("1,000", "plain decimal"),
        ("NaN", "plain decimal"),
        ("１００", "plain decimal"),
        ("+1", "plain decimal"),
    ],
)
def test_amounts_that_cannot_be_say_what_is_wrong(amount: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        read_amount(amount)
    assert caught.value.field == "amount"


@pytest.mark.parametrize(
    ("amount", "nano"),
    [("0.000000001", 1), ("12.5", 12_500_000_000), ("1000000000", 10**18), ("1.5000000000", 1_500_000_000)],
)
def test_an_amount_is_read_to_the_last_digit(amount: str, nano: int) -> None:
    assert read_amount(amount) == nano


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"currency": "USD"}, "currency"),
        ({"currency": "cny"}, "currency"),
        ({"key": ""}, "key"),
        ({"key": "k" * 201}, "key"),
        ({"note": "n" * 201}, "note"),
        ({"note": "\x00"}, "note"),
    ],
)
def test_what_cannot_be_booked_names_its_field(
    wallet: Organization, given: dict[str, str], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        book(wallet, **given)
    assert caught.value.field == field
    assert not Posting.objects.exists()


def test_a_wallet_takes_no_more_than_its_sums_can_hold(wallet: Organization) -> None:
    for n in range(9):
        book(wallet, "1000000000", key=f"k{n}")
    with pytest.raises(Invalid, match="cannot hold so much"):
        book(wallet, "1000000000", key="k9")
    assert book(wallet, "1000000000", key="k0").is_new is False


@pytest.mark.parametrize("role", OF_ROLE)
def test_only_operators_book(wallet: Organization, role: str) -> None:
    acting = Acting(f"a member as {role}", OF_ROLE[role], wallet.pk, 1)
    with pytest.raises(NotAllowed):
        book_top_up(acting=acting, organization=wallet, amount="1", currency="CNY", key="k")
    assert not Posting.objects.exists()


@pytest.fixture
def committed(django_db_setup: None, django_db_blocker) -> Iterator[Organization]:
    """For threads with connections of their own; emptied by the owner afterwards."""
    with django_db_blocker.unblock():
        with scope.site("test"):
            made = Organization.objects.create(name="wallet", title="Wallet", currency="CNY")
        yield made
        connection.close()
        empty_tables(env.database_url())


def test_one_key_sent_many_times_at_once_books_once(committed: Organization) -> None:
    booked: list[TopUp] = []

    def send() -> None:
        try:
            with scope.site("test"):
                booked.append(book(committed))
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(booked) == 8
    assert [found.is_new for found in booked].count(True) == 1
    assert {found.balance_nano for found in booked} == {100 * 10**9}
