import pytest
from django.core.exceptions import RequestDataTooBig
from django.db import OperationalError
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
        (RequestDataTooBig(), 413, []),
        (OperationalError("gone"), 503, []),
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


def _away(*_args, **_kwargs):
    raise OperationalError("no connection to the house of secrets")


@pytest.mark.django_db
def test_a_database_that_does_not_answer_is_a_503_that_says_when_to_come_back(cast, with_key, monkeypatch):
    program = with_key("manager")
    for name in ("console.api.authentication.find_key", "console.api.keys.list_keys"):
        with monkeypatch.context() as patch:
            patch.setattr(name, _away)
            response = program.get("/api/v1/keys/")
        assert (response.status_code, response["Retry-After"]) == (503, "2")
        assert response["Content-Type"] == "application/problem+json"
        assert "secrets" not in response.content.decode()
    monkeypatch.setattr("console.api.authentication.find_key", _away)
    response = program.get("/v1/usage")
    assert (response.status_code, response["Retry-After"]) == (503, "2")
    assert response.json()["error"]["type"] == "service_unavailable_error"


@pytest.mark.django_db
@pytest.mark.parametrize(("path", "kind"), [("/api/v1/keys/", "status"), ("/v1/apikeys", "error")])
def test_a_body_that_is_too_deep_or_too_large_is_refused(cast, with_key, settings, path, kind):
    program = with_key("manager")
    for depth in (100_000, 500):
        deep = program.post(
            path, '{"name": ' + "[" * depth + "]" * depth + "}", content_type="application/json"
        )
        assert (deep.status_code, kind in deep.json()) == (400, True)

    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    large = program.post(path, {"name": "n" * 100}, content_type="application/json")
    assert (large.status_code, kind in large.json()) == (413, True)
    assert program.post(path, {"name": "n" * 50}, content_type="application/json").status_code == 201
