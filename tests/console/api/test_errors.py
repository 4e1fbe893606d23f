import pytest
from django.test import Client
from rest_framework.exceptions import APIException

from accounts.errors import Conflict, Invalid, NotAllowed
from console.api.errors import problem_response
from console.calls.filters import BadFilters
from console.cursor import BadCursor


@pytest.mark.parametrize(
    ("exc", "status", "names"),
    [
        (BadFilters({"from": "no", "to": "no"}), 400, ["from", "to"]),
        (BadCursor("x"), 400, ["cursor"]),
        (Invalid("budget", "No."), 400, ["budget"]),
        (Conflict("name", "Taken."), 409, ["name"]),
        (NotAllowed("No."), 403, []),
        (APIException("Odd."), 500, []),
    ],
)
def test_each_refusal_is_a_problem_with_its_status(exc, status, names):
    response = problem_response(exc, {})

    assert response.status_code == response.data["status"] == status
    assert [error["name"] for error in response.data.get("errors", [])] == names
    assert response.data["detail"]


@pytest.mark.django_db
def test_a_fault_of_ours_is_a_500_without_detail_and_is_logged(cast, with_key, monkeypatch, caplog):
    def broken(*_args, **_kwargs):
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr("console.api.calls.list_calls", broken)
    program = with_key("manager")
    program.raise_request_exception = False

    response = program.get("/api/v1/calls/")

    assert response.status_code == 500
    assert response["Content-Type"] == "application/problem+json"
    assert "secret" not in response.content.decode()
    assert "the secret of the house" in caplog.text


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/api/v1/nothing/", "/api/v1/keys/x,y/", "/api/v1/calls/not-an-id/"])
def test_an_unknown_path_below_the_api_is_a_problem_and_not_a_page(db, path):
    for response in (Client().get(path), Client().post(path)):
        assert response.status_code == 404
        assert response["Content-Type"] == "application/problem+json"


@pytest.mark.django_db
def test_an_address_that_lacks_its_slash_is_led_on(db):
    assert Client().get("/api/v1/calls?page_size=1")["Location"] == "/api/v1/calls/?page_size=1"
