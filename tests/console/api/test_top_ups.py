import pytest
from django.test import Client

from accounts import scope
from billing.models import LedgerEntry, Posting

pytestmark = pytest.mark.django_db
PATH = "/api/v1/organizations/acme/top_ups/"
BODY = {"amount": "250.50", "currency": "CNY", "note": "transfer 7"}


def send(client: Client, body: object = BODY, *, path: str = PATH, key: str | None = "t-7"):
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(path, body, content_type="application/json", headers=headers)


def top_ups() -> int:
    with scope.site("tests"):
        return Posting.objects.filter(kind="top_up").count()


def test_an_operator_books_money_received(cast, with_key):
    answer = send(with_key("operator"))

    assert answer.status_code == 201
    body = answer.json()
    with scope.site("tests"):
        entry = LedgerEntry.objects.get(posting_id=body["id"], account="wallet")
    assert (entry.organization_id, entry.amount_nano) == (cast.acme.pk, 250_500_000_000)
    assert {
        name: body[name] for name in ("organization", "kind", "amount", "currency", "note", "balance")
    } == {
        "organization": "acme",
        "kind": "top_up",
        "amount": "250.5",
        "currency": "CNY",
        "note": "transfer 7",
        "balance": "350.5",
    }


def test_sent_again_it_is_the_first_booking(cast, with_key):
    program = with_key("operator")
    first, second = send(program), send(program)

    assert (second.status_code, second.json()) == (200, first.json())
    assert send(program, key="t-8").status_code == 201
    assert top_ups() == 2


def test_a_key_of_another_booking_is_409_and_no_key_is_400(cast, with_key):
    program = with_key("operator")
    send(program)

    other = send(program, {**BODY, "amount": "250.51"})
    assert (other.status_code, other.json()["errors"][0]["name"]) == (409, "Idempotency-Key")
    missing = send(program, key=None)
    assert (missing.status_code, missing.json()["errors"][0]["name"]) == (400, "Idempotency-Key")
    assert top_ups() == 1


def test_an_operator_in_the_console_may_too(cast, signed_in):
    assert send(signed_in("oli")).status_code == 201


@pytest.mark.parametrize("person", ["ann", "adam", "fay", "erin", "bob", "sam"])
def test_nobody_else_in_the_console_may(cast, signed_in, person):
    assert send(signed_in(person)).status_code == 403
    assert top_ups() == 0


@pytest.mark.parametrize("key", ["ci", "laptop", "manager", "bolt-manager"])
def test_no_other_key_may(cast, with_key, key):
    assert send(with_key(key)).status_code == 403
    assert top_ups() == 0


def test_a_stranger_is_401(cast):
    assert send(Client()).status_code in (401, 403)
    assert (
        send(Client(headers={"Authorization": "Bearer sk-yz-none-of-ours-000000000000"})).status_code == 401
    )
    assert top_ups() == 0


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"amount": "0"}, "amount"),
        ({"amount": "-1"}, "amount"),
        ({"amount": "0.0000000001"}, "amount"),
        ({"amount": "99999999999"}, "amount"),
        ({"amount": "many"}, "amount"),
        ({"amount": 250.5}, "amount"),
        ({"amount": None}, "amount"),
        ({"currency": "EUR"}, "currency"),
        ({"currency": "yuan"}, "currency"),
        ({"note": "n" * 201}, "note"),
        ({"memo": "x"}, "memo"),
    ],
)
def test_what_cannot_be_booked_names_its_field(cast, with_key, changed, name):
    answer = send(with_key("operator"), {**BODY, **changed})

    assert answer.status_code == 400
    assert [error["name"] for error in answer.json()["errors"]] == [name]
    assert top_ups() == 0


def test_an_organization_that_is_not_there_is_404(cast, with_key):
    assert send(with_key("operator"), path="/api/v1/organizations/nobody/top_ups/").status_code == 404
    assert send(with_key("operator"), path="/api/v1/organizations/../top_ups/").status_code == 404
