import asyncio
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from accounts import scope
from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.models import Organization
from accounts.permissions import SYSTEM, Acting, Permission
from billing.balances import balances, balances_async, credits_async, credits_of, spent, spent_async
from billing.ingest import ingest
from billing.ledger import adjust, book_opening_credit, refund, set_currency, top_up
from billing.models import Account, LedgerEntry, Posting, PostingKind
from billing.records import CallRecord

NOBODY = Acting("finance", frozenset({Permission.SEE_MONEY}), organization_id=1)


@pytest.fixture
def everything(db: None) -> Iterator[None]:
    with scope.site("test"):
        yield


@pytest.fixture
def wallet(everything: None) -> Organization:
    return Organization.objects.create(name="wallet", title="Wallet", currency="CNY")


def entries(posting: Posting) -> dict[str, int]:
    return {e.account: e.amount_nano for e in LedgerEntry.objects.filter(posting=posting)}


def balance(organization: Organization) -> int:
    with connection.cursor() as cursor:
        return balances(cursor, [organization.pk])[organization.pk]


def test_an_opening_credit_is_booked_once(wallet: Organization) -> None:
    posting, is_new = book_opening_credit(acting=SYSTEM, organization=wallet, amount_nano=100)
    assert is_new
    assert entries(posting) == {"wallet": 100, "equity": -100}
    assert book_opening_credit(acting=SYSTEM, organization=wallet, amount_nano=999) == (posting, False)
    assert balance(wallet) == 100


def test_two_opening_credits_are_refused_by_the_database(wallet: Organization) -> None:
    book_opening_credit(acting=SYSTEM, organization=wallet, amount_nano=100)
    with pytest.raises(DatabaseError, match="posting_one_opening_credit"), transaction.atomic():
        Posting.objects.create(organization=wallet, kind=PostingKind.OPENING)


def test_a_top_up_that_is_sent_twice_is_booked_once(wallet: Organization) -> None:
    reference = uuid.uuid4()
    first, second = (
        top_up(acting=SYSTEM, organization=wallet, amount_nano=500, reference=reference, memo="transfer 7")
        for _ in range(2)
    )
    assert first == second
    assert entries(first) == {"wallet": 500, "received": -500}
    assert balance(wallet) == 500


def test_a_reference_stands_for_one_booking_only(wallet: Organization) -> None:
    reference = uuid.uuid4()
    top_up(acting=SYSTEM, organization=wallet, amount_nano=500, reference=reference)
    with pytest.raises(Conflict):
        top_up(acting=SYSTEM, organization=wallet, amount_nano=501, reference=reference)
    with pytest.raises(Conflict):
        refund(acting=SYSTEM, organization=wallet, amount_nano=500, reference=reference, memo="x")


def test_refunds_and_adjustments_are_rows_of_their_own(wallet: Organization) -> None:
    given = refund(
        acting=SYSTEM, organization=wallet, amount_nano=30, reference=uuid.uuid4(), memo="cut stream"
    )
    down = adjust(acting=SYSTEM, organization=wallet, amount_nano=-10, reference=uuid.uuid4(), memo="typo")
    slip = adjust(
        acting=SYSTEM,
        organization=wallet,
        amount_nano=-5,
        reference=uuid.uuid4(),
        memo="booked twice",
        against=Account.RECEIVED,
    )
    assert entries(given) == {"wallet": 30, "revenue": -30}
    assert entries(down) == {"wallet": -10, "revenue": 10}
    assert entries(slip) == {"wallet": -5, "received": 5}
    assert balance(wallet) == 15


@pytest.mark.parametrize("amount", [0, -1, 2**63])
def test_amounts_that_cannot_be_are_refused(wallet: Organization, amount: int) -> None:
    with pytest.raises(Invalid):
        top_up(acting=SYSTEM, organization=wallet, amount_nano=amount, reference=uuid.uuid4())
    with pytest.raises(Invalid):
        book_opening_credit(acting=SYSTEM, organization=wallet, amount_nano=amount)


@pytest.mark.parametrize(
    ("given", "field"),
    [({"amount_nano": 0}, "amount"), ({"memo": " "}, "memo"), ({"against": Account.WALLET}, "against")],
)
def test_an_adjustment_says_what_and_why(wallet: Organization, given: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        adjust(
            acting=SYSTEM,
            organization=wallet,
            reference=uuid.uuid4(),
            **{"amount_nano": 5, "memo": "why", **given},
        )
    assert caught.value.field == field


def test_only_operators_book(wallet: Organization) -> None:
    reference = uuid.uuid4()
    for attempt in (
        lambda: book_opening_credit(acting=NOBODY, organization=wallet, amount_nano=1),
        lambda: top_up(acting=NOBODY, organization=wallet, amount_nano=1, reference=reference),
        lambda: refund(acting=NOBODY, organization=wallet, amount_nano=1, reference=reference, memo="x"),
        lambda: adjust(acting=NOBODY, organization=wallet, amount_nano=1, reference=reference, memo="x"),
        lambda: set_currency(acting=NOBODY, organization=wallet, currency="USD"),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert not Posting.objects.exists()


def test_the_currency_can_change_until_something_is_booked(wallet: Organization) -> None:
    assert set_currency(acting=SYSTEM, organization=wallet, currency="USD").currency == "USD"
    with pytest.raises(Invalid):
        set_currency(acting=SYSTEM, organization=wallet, currency="usd")
    top_up(acting=SYSTEM, organization=wallet, amount_nano=1, reference=uuid.uuid4())
    with pytest.raises(Conflict, match="kept in USD"):
        set_currency(acting=SYSTEM, organization=wallet, currency="CNY")
    wallet.refresh_from_db()
    assert wallet.currency == "USD"


@pytest.mark.parametrize(
    "sides",
    [
        [("wallet", 5, "CNY"), ("revenue", -4, "CNY")],
        [("wallet", 5, "CNY")],
        [("wallet", 5, "CNY"), ("revenue", -5, "USD")],
        [("wallet", 5, "USD"), ("revenue", -5, "USD")],
    ],
)
def test_a_posting_that_does_not_balance_is_refused_by_the_database(wallet: Organization, sides) -> None:
    with pytest.raises(DatabaseError, match="does not balance"), transaction.atomic():
        posting = Posting.objects.create(organization=wallet, kind=PostingKind.ADJUSTMENT)
        for account, amount, currency in sides:
            LedgerEntry.objects.create(
                posting=posting, organization=wallet, account=account, amount_nano=amount, currency=currency
            )
        connection.check_constraints()


def test_half_a_posting_cannot_hide_in_another_organization(wallet: Organization) -> None:
    other = Organization.objects.create(name="other", title="Other", currency="CNY")
    with pytest.raises(DatabaseError, match="does not balance"), transaction.atomic():
        posting = Posting.objects.create(organization=wallet, kind=PostingKind.ADJUSTMENT)
        for organization, amount in ((wallet, 5), (other, -5)):
            LedgerEntry.objects.create(
                posting=posting,
                organization=organization,
                account="wallet",
                amount_nano=amount,
                currency="CNY",
            )
        connection.check_constraints()


async def test_the_balance_is_credits_less_what_was_used(
    acme: Organization, call: Callable[..., CallRecord], connect
) -> None:
    def pay_in() -> None:
        with scope.site("test"):
            book_opening_credit(acting=SYSTEM, organization=acme, amount_nano=1_000)
            top_up(acting=SYSTEM, organization=acme, amount_nano=500, reference=uuid.uuid4())

    await asyncio.to_thread(in_own_connection, pay_in)
    calls = [call(acme, amount_nano=amount, key_id=key) for amount, key in ((7, 1), (11, 2), (0, 2), (13, 1))]
    await ingest(await connect(), calls)
    owner: psycopg.AsyncConnection = await connect("relay_owner")
    assert await balances_async(owner, [acme.pk, -1]) == {acme.pk: 1_000 + 500 - 31, -1: 0}
    assert await credits_async(owner, [acme.pk, -1]) == {acme.pk: 1_500, -1: 0}
    assert await spent_async(owner, [acme.pk, -1]) == {acme.pk: {"o": 31, "k1": 20, "k2": 11}, -1: {}}

    def read_with_django() -> tuple[dict, dict, dict]:
        with scope.organization(acme.pk), connection.cursor() as cursor:
            ids = [acme.pk]
            return balances(cursor, ids), credits_of(cursor, ids), spent(cursor, ids)

    assert await asyncio.to_thread(in_own_connection, read_with_django) == (
        {acme.pk: 1_469},
        {acme.pk: 1_500},
        {acme.pk: {"o": 31, "k1": 20, "k2": 11}},
    )


def in_own_connection(function: Callable[[], object]) -> object:
    """Run in this thread's own Django connection, and close it."""
    try:
        return function()
    finally:
        connection.close()
