"""`manage.py top_up`: money received, booked from the command line."""

import io
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command

from accounts import scope
from accounts.models import Organization
from billing.models import Posting

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Iterator[Organization]:
    with scope.site("test"):
        yield Organization.objects.create(name="acme", title="Acme", currency="CNY")


def run(*arguments: str) -> list[str]:
    out = io.StringIO()
    call_command("top_up", *arguments, stdout=out, stderr=out)
    return out.getvalue().splitlines()


def test_it_says_the_posting_and_the_balance(acme: Organization) -> None:
    said = run("acme", "250.50", "CNY", "--note", "transfer 7")

    posting = Posting.objects.get()
    assert said == [f"posting {posting.pk}: 250.5 CNY into the wallet of acme", "balance: 250.5 CNY"]
    assert (posting.kind, posting.memo) == ("top_up", "transfer 7")


def test_a_key_makes_it_happen_once_and_without_one_each_is_a_booking(acme: Organization) -> None:
    run("acme", "1", "CNY", "--key", "t-7")
    again = run("acme", "1", "CNY", "--key", "t-7")
    assert "booked before" in again[0]
    assert again[1] == "balance: 1 CNY"

    run("acme", "1", "CNY")
    assert run("acme", "1", "CNY")[1] == "balance: 3 CNY"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody", "1", "CNY"), "no organization named 'nobody'"),
        (("acme", "1", "USD"), "kept in CNY"),
        (("acme", "0", "CNY"), "above 0"),
        (("acme", "-3", "CNY"), "above 0"),
        (("acme", "0.0000000001", "CNY"), "9 digits"),
        (("acme", "99999999999", "CNY"), "slip"),
        (("acme", "lots", "CNY"), "plain decimal"),
    ],
)
def test_what_cannot_be_booked_is_said_and_changes_nothing(
    acme: Organization, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(CommandError, match=said):
        run(*arguments)
    assert not Posting.objects.exists()
