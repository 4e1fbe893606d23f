import re
import uuid

import pytest

from accounts import scope
from billing.models import Posting

pytestmark = pytest.mark.django_db
PATH = "/money/top-up/"


@pytest.fixture
def operator(cast, signed_in, store):
    return signed_in("oli")


def form(**given: str) -> dict[str, str]:
    return {
        "organization": "acme",
        "amount": "250.50",
        "currency": "CNY",
        "key": str(uuid.uuid4()),
        "note": "transfer 7",
        **given,
    }


def top_ups() -> list[Posting]:
    with scope.site("tests"):
        return list(Posting.objects.filter(kind="top_up"))


def test_an_operator_is_asked_once_more_and_then_it_is_booked(operator):
    page = operator.get(PATH, {"organization": "acme"}).content.decode()
    given = form(key=re.search(r'name="key" value="([^"]+)"', page)[1])

    asked = operator.post(PATH, given)
    assert (asked.context["amount"], asked.context["balance_after"]) == (250_500_000_000, 350_500_000_000)
    assert top_ups() == []
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked.content.decode()))
    assert {name: hidden[name] for name in ("amount", "currency", "key", "note")} == {
        **{name: given[name] for name in ("currency", "key", "note")},
        "amount": "250.5",
    }

    done = operator.post(PATH, {**hidden, "confirmed": "yes"}, follow=True)
    (posting,) = top_ups()
    assert f"250.5 CNY is booked as posting {posting.pk}" in done.content.decode()
    newest = done.context["page"].postings[0]
    assert (newest.id, newest.kind, newest.memo) == (posting.pk, "top_up", "transfer 7")
    assert done.context["balance"] == 350_500_000_000


def test_a_form_sent_twice_books_once(operator):
    given = {**form(), "confirmed": "yes"}
    operator.post(PATH, given)
    again = operator.post(PATH, given, follow=True)

    assert "Nothing was booked twice" in again.content.decode()
    assert len(top_ups()) == 1


def test_a_form_sent_again_with_another_amount_books_nothing(operator):
    given = {**form(), "confirmed": "yes"}
    operator.post(PATH, given)
    again = operator.post(PATH, {**given, "amount": "9"})

    assert "sent before with another amount" in again.content.decode()
    assert given["key"] not in again.content.decode()
    assert len(top_ups()) == 1


@pytest.mark.parametrize("confirmed", [{}, {"confirmed": "yes"}])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"amount": "0"}, "above 0"),
        ({"amount": "-1"}, "above 0"),
        ({"amount": "0.0000000001"}, "9 decimal places"),
        ({"amount": "1000000000.5"}, "less than or equal to 1000000000"),
        ({"amount": "many"}, "Enter a number"),
        ({"amount": ""}, "required"),
        ({"note": "n" * 201}, "at most 200"),
        ({"currency": "EUR"}, "currency is another one"),
    ],
)
def test_what_cannot_be_booked_is_told_beside_its_field(operator, changed, said, confirmed):
    answer = operator.post(PATH, {**form(**changed), **confirmed})

    assert said in answer.content.decode()
    assert top_ups() == []


@pytest.mark.parametrize("person", ["ann", "adam", "fay", "erin", "bob"])
def test_nobody_else_sees_or_sends_it(cast, signed_in, store, person):
    browser = signed_in(person)
    organization = "bolt" if person == "bob" else "acme"

    assert browser.get(PATH, {"organization": organization}).status_code == 403
    given = {**form(organization=organization), "confirmed": "yes"}
    assert browser.post(PATH, given).status_code == 403
    assert top_ups() == []
    if person in ("ann", "fay"):
        assert PATH not in browser.get("/money/").content.decode()


def test_the_money_page_leads_an_operator_to_it(operator):
    assert PATH in operator.get("/money/", {"organization": "acme"}).content.decode()
