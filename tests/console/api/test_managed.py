import uuid
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test import Client

from accounts import scope
from accounts.models import Key
from accounts.permissions import SYSTEM
from billing.ledger import adjust
from relay.admission.counters import initialise_counters
from relay.admission.scripts import use_key

pytestmark = pytest.mark.django_db
JSON = {"content_type": "application/json"}


def spend(cast, key: str, nano: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE relay_ingest")
        cursor.execute(
            "INSERT INTO billing_spenttotal (organization_id, level, spent_nano, calls) VALUES (%s, %s, %s, 1)",
            [cast.acme.pk, f"k{cast.keys[key].pk}", nano],
        )
        cursor.execute("SET LOCAL ROLE relay_app")


def test_the_balance_is_what_the_ledger_says_and_holds_are_not_taken_off(cast, with_key, store):
    with scope.organization(cast.acme.pk):
        adjust(
            acting=SYSTEM, organization=cast.acme, amount_nano=-2_900_000, reference=uuid.uuid4(), memo="used"
        )
    assert initialise_counters(store, cast.acme.pk, {"o": 2_900_000})
    assert with_key("manager").get("/v1/balance").json()["held"] == "0"
    store.hset(use_key(cast.acme.pk), "o", "2900000 10000000 1")

    assert with_key("manager").get("/v1/balance").json() == {
        "object": "balance",
        "currency": "CNY",
        "balance": "99.9971",
        "held": "0.01",
        "available": "99.9871",
    }


def test_with_counters_that_nobody_told_nothing_is_held(cast, with_key, store):
    balance = with_key("manager").get("/v1/balance").json()

    assert (balance["held"], balance["available"]) == ("0", "100")


def test_with_the_store_away_the_balance_is_a_503(cast, with_key, settings):
    settings.LIMITS_REDIS_URL = "redis://127.0.0.1:1/0"

    response = with_key("manager").get("/v1/balance")

    assert response.status_code == 503
    assert response["Retry-After"] == "2"
    assert response.json()["error"]["type"] == "service_unavailable_error"


def test_any_key_reads_what_it_used_itself(cast, with_key, store):
    with scope.organization(cast.acme.pk):
        Key.objects.filter(name="ci").update(budget_nano=5 * 10**9, rpm=60)
    spend(cast, "ci", 1_250_000_000)
    store.hset(
        use_key(cast.acme.pk), mapping={"epoch": 1, f"k{cast.keys['ci'].pk}": "1250000000 1000000000 1"}
    )

    assert with_key("ci").get("/v1/usage").json() == {
        "object": "usage",
        "name": "ci",
        "prefix": cast.keys["ci"].prefix,
        "currency": "CNY",
        "spent": "1.25",
        "held": "1",
        "budget": "5",
        "left": "2.75",
        "rpm": 60,
        "concurrency": None,
        "expires_at": None,
    }
    assert with_key("laptop").get("/v1/usage").json()["left"] is None


def test_usage_counts_what_the_store_has_settled_before_the_record_is_written(cast, with_key, store):
    initialise_counters(store, cast.acme.pk, {f"k{cast.keys['ci'].pk}": 7 * 10**9})

    assert with_key("ci").get("/v1/usage").json()["spent"] == "7"


def test_usage_is_cheap_and_works_without_the_store(cast, with_key, settings, django_assert_max_num_queries):
    settings.LIMITS_REDIS_URL = "redis://127.0.0.1:1/0"
    spend(cast, "ci", 10**9)

    with django_assert_max_num_queries(8):
        response = with_key("ci").get("/v1/usage")

    assert (response.json()["spent"], response.json()["held"]) == ("1", "0")


@pytest.mark.parametrize(
    "place",
    [
        lambda key: {"headers": {"Authorization": f"Bearer {key}"}},
        lambda key: {"headers": {"x-api-key": key}},
        lambda key: {"headers": {"x-goog-api-key": key}},
        lambda key: {"headers": {"api-key": key}},
        lambda key: {"query_params": {"key": key}},
    ],
)
def test_the_key_may_stand_in_any_of_the_five_places(cast, store, place):
    assert Client().get("/v1/balance/", **place(cast.clear["manager"])).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        lambda cast: {},
        lambda cast: {"headers": {"x-api-key": "sk-yz-unknown-unknown-unknown"}},
        lambda cast: {"headers": {"x-api-key": cast.clear["ci"], "api-key": cast.clear["manager"]}},
        lambda cast: {"headers": {"Authorization": "Basic abc"}},
    ],
)
def test_no_key_a_wrong_one_and_two_that_differ_are_401_in_openais_form(cast, sent):
    response = Client().get("/v1/usage", **sent(cast))

    assert response.status_code == 401
    assert response["WWW-Authenticate"]
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "invalid_api_key",
        None,
    )


@pytest.mark.parametrize("path", ["/v1/balance", "/v1/apikeys", "/v1/apikey_groups"])
def test_a_key_without_the_scope_is_403(cast, with_key, path):
    response = with_key("ci").get(path)

    assert response.status_code == 403
    assert (response.json()["error"]["type"], response.json()["error"]["code"]) == (
        "permission_error",
        "insufficient_scope",
    )


def test_keys_are_made_listed_changed_and_revoked(cast, with_key):
    program = with_key("manager")

    made = program.post(
        "/v1/apikeys",
        {"name": "intern", "budget": "3", "expiry_date": "2026-12-31", "group_id": None},
        **JSON,
    )
    row = made.json()
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    assert (row["name"], row["budget"], row["expiry_date"]) == ("intern", "3", "2026-12-31T16:00:00Z")
    assert Client(headers={"x-api-key": row["key"]}).get("/v1/usage").json()["name"] == "intern"

    listed = program.get("/v1/apikeys").json()
    assert listed["object"] == "list"
    assert {"id": row["id"], "name": "intern"}.items() <= listed["data"][0].items()
    assert "key" not in listed["data"][0]
    assert (listed["has_more"], listed["next"]) == (False, None)

    changed = program.patch(f"/v1/apikeys/{row['id']}", {"name": "intern-2", "budget": 4.5}, **JSON)
    assert (changed.json()["name"], changed.json()["budget"]) == ("intern-2", "4.5")
    assert changed.json()["expiry_date"] == "2026-12-31T16:00:00Z"
    assert program.get(f"/v1/apikeys/{row['id']}").json()["name"] == "intern-2"

    assert program.delete(f"/v1/apikeys/{row['id']}").status_code == 204
    assert Client(headers={"x-api-key": row["key"]}).get("/v1/usage").status_code == 401
    assert row["id"] not in [key["id"] for key in program.get("/v1/apikeys").json()["data"]]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "name"),
        ({"name": "ci"}, 409, "name"),
        ({"name": "n", "budget": "much"}, 400, "budget"),
        ({"name": "n", "expiry_date": "soon"}, 400, "expiry_date"),
        ({"name": "n", "daily_limit": "1"}, 400, "daily_limit"),
        ({"name": "n", "monthly_limit": 5}, 400, "monthly_limit"),
        ({"name": "n", "group_id": 3}, 400, "group_id"),
        ({"name": "n", "input_price_limit": "2"}, 400, "input_price_limit"),
        ({"name": "n", "output_price_limit": "2"}, 400, "output_price_limit"),
        ({"name": "n", "limits": {"budget": "1"}}, 400, "limits"),
        ({"name": "n", "expires": "2027-01-01"}, 400, "expires"),
        ({"name": "n", "models": ["kimi-k3"]}, 400, "models"),
        ({"name": "n", "scopes": ["operate"]}, 403, None),
    ],
)
def test_what_a_key_cannot_carry_is_refused_by_name(cast, with_key, body, status, param):
    response = with_key("manager").post("/v1/apikeys", body, **JSON)

    assert response.status_code == status
    assert response.json()["error"]["param"] == param
    with scope.organization(cast.acme.pk):
        assert not Key.objects.filter(name="n").exists()


def test_another_organizations_key_is_404(cast, with_key):
    path = f"/v1/apikeys/{cast.keys['bolt-ci'].pk}"

    assert with_key("manager").get(path).json()["error"]["code"] == "not_found"
    assert with_key("manager").patch(path, {"name": "mine"}, **JSON).status_code == 404
    assert with_key("manager").delete(path).status_code == 404
    assert "bolt-ci" not in str(with_key("manager").get("/v1/apikeys").json())


def test_a_change_with_an_unknown_field_is_refused(cast, with_key):
    response = with_key("manager").patch(f"/v1/apikeys/{cast.keys['ci'].pk}", {"rpm": 1}, **JSON)

    assert (response.status_code, response.json()["error"]["param"]) == (400, "rpm")


def test_a_revoked_key_cannot_be_changed(cast, with_key):
    with scope.organization(cast.acme.pk):
        Key.objects.filter(name="ci").update(revoked_at=datetime.now(UTC))

    response = with_key("manager").patch(f"/v1/apikeys/{cast.keys['ci'].pk}", {"name": "again"}, **JSON)

    assert response.status_code == 409


def test_the_list_of_keys_is_paged(cast, with_key):
    program, names, address = with_key("manager"), [], "/v1/apikeys?page_size=2"

    while address:
        page = program.get(address).json()
        names += [row["name"] for row in page["data"]]
        assert page["has_more"] == (page["next"] is not None)
        address = page["next"]

    assert sorted(names) == ["ci", "laptop", "manager", "operator"]


def test_an_operating_key_manages_all_and_makes_keys_for_its_own_organization(cast, with_key):
    program = with_key("operator")

    assert "bolt-ci" in [row["name"] for row in program.get("/v1/apikeys").json()["data"]]
    made = program.post("/v1/apikeys", {"name": "n"}, **JSON).json()
    with scope.site("tests"):
        assert Key.objects.get(pk=made["id"]).organization_id == cast.acme.pk


def test_there_are_no_groups_and_none_can_be_made(cast, with_key):
    program = with_key("manager")

    assert program.get("/v1/apikey_groups").json()["data"] == []
    refused = program.post("/v1/apikey_groups", {"name": "g"}, **JSON)
    assert refused.status_code == 400
    assert "not offered" in refused.json()["error"]["message"]


def test_a_method_that_is_not_there_is_told_in_openais_form(cast, with_key):
    response = with_key("manager").delete("/v1/balance")

    assert response.status_code == 405
    assert response.json()["error"]["type"] == "invalid_request_error"
