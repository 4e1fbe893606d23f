from datetime import UTC, datetime

import pytest
from django.conf import settings as site_settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts import scope
from accounts.keys import fingerprint
from accounts.models import Key
from accounts.permissions import SYSTEM
from accounts.services.keys import KeyTerms, create_key

pytestmark = pytest.mark.django_db
LIST = "/api/v1/keys/"
JSON = {"content_type": "application/json"}


def stored(cast, key_id: int) -> Key:
    with scope.site("tests"):
        return Key.objects.select_related("member__user").get(pk=key_id)


def test_a_key_is_made_changed_read_and_revoked(cast, with_key, settings):
    program = with_key("manager")
    body = {
        "name": "nightly",
        "member": "erin@example.com",
        "models": ["kimi-k2"],
        "limits": {"budget": "12.5", "rpm": 60},
        "expires_at": "2027-01-01T00:00:00Z",
    }

    made = program.post(LIST, body, **JSON)
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    answer = made.json()
    key = stored(cast, answer["id"])
    assert bytes(key.fingerprint) == fingerprint(answer["value"].encode(), settings.KEY_PEPPERS[0])
    assert answer["limits"] == {"budget": "12.5", "rpm": 60, "concurrency": None}
    assert (answer["member"], answer["models"], answer["scopes"]) == (
        "erin@example.com",
        ["kimi-k2"],
        ["call"],
    )
    assert (answer["organization"], answer["currency"], answer["spent"]) == ("acme", "CNY", "0")

    path = f"{LIST}{answer['id']}/"
    changed = program.patch(path, {"limits": {"concurrency": 3}, "models": None, "name": "nightly-2"}, **JSON)
    assert changed.status_code == 200
    assert changed.json()["limits"] == {"budget": "12.5", "rpm": 60, "concurrency": 3}
    assert (changed.json()["name"], changed.json()["models"]) == ("nightly-2", None)
    assert changed.json()["expires_at"] == "2027-01-01T00:00:00Z"
    assert "value" not in program.get(path).json()

    assert program.delete(path).status_code == 204
    assert program.delete(path).status_code == 204
    assert program.get(path).json()["revoked_at"] is not None
    assert program.patch(path, {"name": "again"}, **JSON).status_code == 409


def test_limits_are_taken_away_with_null(cast, with_key):
    program = with_key("manager")
    key_id = program.post(LIST, {"name": "n", "limits": {"budget": "1", "rpm": 1}}, **JSON).json()["id"]

    program.patch(f"{LIST}{key_id}/", {"limits": {"budget": None}}, **JSON)

    assert (stored(cast, key_id).budget_nano, stored(cast, key_id).rpm) == (None, 1)


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        ({}, 400, "name"),
        ({"name": "ci"}, 409, "name"),
        ({"name": "n", "member": "bob@example.com"}, 400, "member"),
        ({"name": "n", "member": "nobody"}, 400, "member"),
        ({"name": "n", "models": []}, 400, "models"),
        ({"name": "n", "scopes": ["fly"]}, 400, "scopes.0"),
        ({"name": "n", "scopes": []}, 400, "scopes"),
        ({"name": "n", "limits": {"budget": "-1"}}, 400, "limits.budget"),
        ({"name": "n", "limits": {"budget": "1e3"}}, 400, "limits.budget"),
        ({"name": "n", "limits": {"budget": True}}, 400, "limits.budget"),
        ({"name": "n", "limits": {"rpm": 0}}, 400, "limits.rpm"),
        ({"name": "n", "expires_at": "soon"}, 400, "expires_at"),
        ({"name": "n", "budget": "1"}, 400, "budget"),
        ({"name": "n", "value": "a-fixed-key-for-automation"}, 400, "value"),
        ({"name": "n", "limits": {"budgets": "1"}}, 400, "limits.budgets"),
        ({"name": "n", "models": ["kimi-k2", "kimi-k3"]}, 400, "models"),
        ([], 400, "body"),
    ],
)
def test_a_body_that_cannot_be_is_refused_by_name(cast, with_key, body, status, name):
    response = with_key("manager").post(LIST, body, **JSON)

    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    assert [error["name"] for error in response.json()["errors"]] == [name]


def test_a_change_with_a_field_that_is_not_there_changes_nothing(cast, with_key):
    path = f"{LIST}{cast.keys['ci'].pk}/"

    for body, name in (
        ({"name": "x", "rpm": 1}, "rpm"),
        ({"name": "x", "limits": {"rps": 1}}, "limits.rps"),
        ({"name": "x", "models": ["kimi-k3"]}, "models"),
    ):
        response = with_key("manager").patch(path, body, **JSON)
        assert (response.status_code, response.json()["errors"][0]["name"]) == (400, name)
    assert stored(cast, cast.keys["ci"].pk).name == "ci"


def test_a_key_may_keep_a_model_that_has_gone(cast, with_key):
    key_id = cast.keys["ci"].pk
    with scope.organization(cast.acme.pk):
        Key.objects.filter(pk=key_id).update(allowed_models=["old"])

    body = {"models": ["old", "kimi-k2", "kimi-k2"]}
    assert with_key("manager").patch(f"{LIST}{key_id}/", body, **JSON).json()["models"] == ["old", "kimi-k2"]


def test_what_is_no_json_is_refused(cast, with_key):
    program = with_key("manager")

    assert program.post(LIST, "{", **JSON).status_code == 400
    assert program.post(LIST, {"name": "n"}).status_code == 415


def test_a_budget_may_be_a_json_number(cast, with_key):
    made = with_key("manager").post(LIST, '{"name": "n", "limits": {"budget": 0.1}}', **JSON)

    assert made.json()["limits"]["budget"] == "0.1"


def test_nobody_gets_more_than_they_have(cast, with_key, signed_in):
    asked = {"name": "n", "scopes": ["operate"]}

    assert with_key("manager").post(LIST, asked, **JSON).status_code == 403
    assert signed_in("ann").post(LIST, asked, **JSON).status_code == 403
    assert with_key("ci").post(LIST, {"name": "n"}, **JSON).status_code == 403
    assert signed_in("erin").post(LIST, {"name": "n"}, **JSON).status_code == 403
    with scope.organization(cast.acme.pk):
        assert not Key.objects.filter(name="n").exists()


def test_a_key_of_operators_takes_an_operator(cast, with_key, signed_in):
    key_id = cast.keys["operator"].pk

    for client in (with_key("manager"), signed_in("ann")):
        for path in (f"{LIST}{key_id}/",):
            assert client.patch(path, {"name": "mine"}, **JSON).status_code == 403
            assert client.delete(path).status_code == 403
        assert client.patch(f"{LIST}{key_id}/", {"limits": {"rpm": 1}}, **JSON).status_code == 403
    assert (stored(cast, key_id).name, stored(cast, key_id).rpm, stored(cast, key_id).revoked_at) == (
        "operator",
        None,
        None,
    )
    assert with_key("operator").patch(f"{LIST}{key_id}/", {"name": "site"}, **JSON).status_code == 200


def test_another_organizations_key_is_404_and_stays_as_it_is(cast, with_key, signed_in):
    path = f"{LIST}{cast.keys['bolt-ci'].pk}/"

    for client in (with_key("manager"), signed_in("ann")):
        assert client.get(path).status_code == 404
        assert client.patch(path, {"name": "mine"}, **JSON).status_code == 404
        assert client.delete(path).status_code == 404
        assert client.get(f"{LIST}{10**30}/").status_code == 404
    assert (stored(cast, cast.keys["bolt-ci"].pk).name, stored(cast, cast.keys["bolt-ci"].pk).revoked_at) == (
        "bolt-ci",
        None,
    )


def test_an_employee_reads_their_own_key_and_changes_none(cast, signed_in):
    browser, path = signed_in("erin"), f"{LIST}{cast.keys['laptop'].pk}/"

    assert [key["name"] for key in browser.get(LIST).json()["results"]] == ["laptop"]
    assert browser.get(path).json()["name"] == "laptop"
    assert browser.patch(path, {"name": "mine"}, **JSON).status_code == 403
    assert browser.delete(path).status_code == 403


def test_a_session_needs_its_token_to_change_anything(cast):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(cast.users["ann"])

    assert browser.get(LIST).status_code == 200
    assert browser.post(LIST, {"name": "n"}, **JSON).status_code == 403
    assert browser.delete(f"{LIST}{cast.keys['ci'].pk}/").status_code == 403
    browser.get("/keys/new/")
    token = {"headers": {"X-CSRFToken": browser.cookies[site_settings.CSRF_COOKIE_NAME].value}}
    assert browser.post(LIST, {"name": "n"}, **JSON, **token).status_code == 201


def test_an_operator_names_the_organization_that_a_key_is_for(cast, with_key):
    program = with_key("operator")

    unnamed = program.post(LIST, {"name": "n"}, **JSON)
    named = program.post(f"{LIST}?organization=bolt", {"name": "n"}, **JSON)

    assert unnamed.status_code == 400
    assert unnamed.json()["errors"][0]["name"] == "organization"
    assert named.json()["organization"] == "bolt"
    assert {key["organization"] for key in program.get(LIST).json()["results"]} == {"acme", "bolt"}
    assert program.delete(f"{LIST}{cast.keys['bolt-ci'].pk}/").status_code == 204


def test_the_list_is_narrowed_by_state_and_paged(cast, with_key):
    program = with_key("manager")
    with scope.organization(cast.acme.pk):
        for n in range(7):
            create_key(acting=SYSTEM, organization=cast.acme, name=f"k{n}", terms=KeyTerms())
        Key.objects.filter(name__startswith="k").update(created_at=datetime.now(UTC))
        Key.objects.filter(name="ci").update(revoked_at=datetime.now(UTC))

    names, address = [], f"{LIST}?page_size=3&state=live"
    while address:
        page = program.get(address).json()
        names += [key["name"] for key in page["results"]]
        address = page["next"]

    assert sorted(names) == sorted(["laptop", "manager", "operator", *(f"k{n}" for n in range(7))])
    assert [key["name"] for key in program.get(LIST, {"state": "revoked"}).json()["results"]] == ["ci"]
    assert program.get(LIST, {"state": "odd"}).json()["errors"][0]["name"] == "state"
    assert program.get(LIST, {"cursor": "x"}).status_code == 400


def test_the_list_costs_the_same_number_of_queries_however_long_it_is(cast, with_key):
    program = with_key("manager")
    program.get(LIST)
    with CaptureQueriesContext(connection) as few:
        program.get(LIST)
    with scope.organization(cast.acme.pk):
        for n in range(20):
            terms = KeyTerms(member=cast.members["erin" if n % 2 else "ann"])
            create_key(acting=SYSTEM, organization=cast.acme, name=f"k{n}", terms=terms)

    with CaptureQueriesContext(connection) as many:
        program.get(LIST)

    assert len(many) == len(few)
