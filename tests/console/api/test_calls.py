from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

pytestmark = pytest.mark.django_db
LIST = "/api/v1/calls/"
FIELDS = {
    "id", "task_id", "created_at", "organization", "member", "key", "client", "endpoint", "model", "protocol",
    "upstream_model", "answered_model", "service_tier", "reasoning_effort", "stream", "status", "http_status",
    "error_kind", "end_reason", "attempts", "input_tokens", "uncached_input_tokens", "cached_input_tokens",
    "cache_write_5m_tokens", "cache_write_30m_tokens", "cache_write_1h_tokens", "output_tokens", "reasoning_tokens",
    "usage_source", "price_version", "amount", "currency", "timing", "cache_hit_ratio", "diagnosis",
}  # fmt: skip
OPERATORS_ONLY = {"upstream", "upstream_request_id", "cost"}


def ids(response) -> list[str]:
    return [call["id"] for call in response.json()["results"]]


def test_a_managing_key_reads_a_call_in_the_agreed_shape(cast, with_key):
    made = cast.call(created_at=datetime(2026, 11, 30, 18, 30, 1, 5000, tzinfo=UTC), task_id="t-1")

    call = with_key("manager").get(f"{LIST}{made.id}/").json()

    assert set(call) == FIELDS
    assert (call["organization"], call["member"], call["key"]) == ("acme", "ann@example.com", "ci")
    assert call["created_at"] == "2026-11-30T18:30:01.005000Z"
    assert (call["input_tokens"], call["cached_input_tokens"], call["cache_hit_ratio"]) == (4000, 3000, 0.75)
    assert (call["amount"], call["currency"]) == ("0.00867", "CNY")
    assert call["timing"] == {
        "total_ms": 2000,
        "ttft_ms": 700,
        "ttfb_ms": 300,
        "stages": call["timing"]["stages"],
    }
    assert sum(call["timing"]["stages"].values()) == pytest.approx(2000)
    assert call["attempts"] == [
        {"upstream_model": "kimi-k2-0905", "result": "ok", "ms": 1800.0, "http_status": 200}
    ]
    assert call["diagnosis"] is None


def test_an_operating_key_sees_every_organization_and_the_upstream(cast, with_key):
    cast.call()
    foreign = cast.call(key="bolt-ci")
    program = with_key("operator")

    call = program.get(f"{LIST}{foreign.id}/").json()

    assert set(call) == FIELDS | OPERATORS_ONLY
    assert (call["organization"], call["upstream"], call["cost"]) == ("bolt", "secret-account", "0.00816")
    assert len(ids(program.get(LIST))) == 2
    assert ids(program.get(LIST, {"organization": "bolt"})) == [str(foreign.id)]
    assert program.get(LIST, {"organization": "nowhere"}).status_code == 404


def test_another_organizations_call_is_404(cast, with_key):
    foreign = cast.call(key="bolt-ci")
    program = with_key("manager")

    assert program.get(f"{LIST}{foreign.id}/").status_code == 404
    assert program.get(f"{LIST}{uuid4()}/").status_code == 404
    assert ids(program.get(LIST)) == []
    assert program.get(LIST, {"organization": "bolt"}).status_code == 404
    assert ids(program.get(LIST, {"key": "bolt-ci"})) == []
    assert ids(program.get(LIST, {"member": str(cast.members["bob"].pk)})) == []


def test_a_signed_in_person_sees_what_their_role_includes(cast, signed_in):
    own, other = cast.call(key="laptop"), cast.call(key="ci")

    assert set(ids(signed_in("fay").get(LIST))) == {str(own.id), str(other.id)}
    assert ids(signed_in("erin").get(LIST)) == [str(own.id)]
    assert signed_in("erin").get(f"{LIST}{other.id}/").status_code == 404
    assert signed_in("bob").get(LIST, {"organization": "acme"}).status_code == 404
    assert signed_in("sam").get(LIST).status_code == 403
    assert len(ids(signed_in("oli").get(LIST))) == 2


def test_without_a_key_or_a_session_it_is_401_and_says_how_to_authenticate(cast):
    response = Client().get(LIST)

    assert response.status_code == 401
    assert response["WWW-Authenticate"] == 'Bearer realm="yizhan"'
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["status"] == 401


@pytest.mark.parametrize("value", ["sk-yz-nope", "", "x" * 600, "\u00e9"])
def test_an_unknown_key_is_401(cast, value):
    assert Client(headers={"Authorization": f"Bearer {value}"}).get(LIST).status_code == 401


def test_a_revoked_and_an_expired_key_are_401(cast, with_key):
    from accounts import scope
    from accounts.models import Key

    for change in (
        {"revoked_at": datetime.now(UTC)},
        {"expires_at": datetime.now(UTC) - timedelta(seconds=1)},
    ):
        with scope.organization(cast.acme.pk):
            Key.objects.filter(name="manager").update(revoked_at=None, expires_at=None)
        assert with_key("manager").get(LIST).status_code == 200
        with scope.organization(cast.acme.pk):
            Key.objects.filter(name="manager").update(**change)
        assert with_key("manager").get(LIST).status_code == 401


def test_a_key_that_may_only_call_models_is_403(cast, with_key):
    response = with_key("ci").get(LIST)

    assert response.status_code == 403
    assert "scope manage" in response.json()["detail"]


def test_a_key_of_an_organization_that_was_switched_off_is_403(cast, with_key):
    from accounts import scope
    from accounts.permissions import SYSTEM
    from accounts.services.organizations import set_organization_enabled

    with scope.site("tests"):
        set_organization_enabled(acting=SYSTEM, organization=cast.acme, enabled=False)

    assert with_key("manager").get(LIST).status_code == 403


def test_pages_follow_next_to_the_end(cast, with_key):
    moment = datetime.now(UTC) - timedelta(hours=1)
    made = cast.calls([{"created_at": moment, "task_id": "t"}] * 7)
    cast.call(task_id="other")
    program, seen, address = with_key("manager"), [], f"{LIST}?page_size=3&task_id=t"

    while address:
        response = program.get(address)
        assert set(response.json()) == {"results", "next"}
        seen += ids(response)
        address = response.json()["next"]
        assert address is None or address.startswith("http://testserver/api/v1/calls/?")

    assert seen == [str(call.id) for call in sorted(made, key=lambda call: call.id, reverse=True)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("from", "yesterday"),
        ("to", "x"),
        ("status", "fine"),
        ("min_ttft_ms", "-1"),
        ("min_total_ms", "many"),
        ("stream", "perhaps"),
        ("cursor", "tampered"),
        ("page_size", "0"),
        ("page_size", "many"),
    ],
)
def test_a_parameter_that_cannot_be_read_is_a_400_that_names_it(cast, with_key, name, value):
    response = with_key("manager").get(LIST, {name: value})

    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    assert [error["name"] for error in response.json()["errors"]] == [name]
    assert name in response.json()["detail"]


def test_the_size_of_a_page_is_bounded(cast, with_key):
    cast.calls([{}] * 205)
    program = with_key("manager")

    assert len(ids(program.get(LIST))) == 50
    assert len(ids(program.get(LIST, {"page_size": 100_000}))) == 200


def test_every_filter_of_the_contract_narrows(cast, with_key):
    made = cast.call(
        key="laptop",
        model="deepseek-v4",
        status="upstream_error",
        error_kind="upstream_cut",
        task_id="t",
        ttft_ms=5000.0,
        total_ms=9000.0,
        stream=False,
    )
    cast.call()
    program = with_key("manager")
    words = {
        "from": (datetime.now(UTC) - timedelta(hours=1)).isoformat(),
        "to": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
        "model": "deepseek-v4",
        "key": cast.keys["laptop"].prefix,
        "member": "erin@example.com",
        "status": "upstream_error",
        "error_kind": "upstream_cut",
        "task_id": "t",
        "min_ttft_ms": "4000",
        "min_total_ms": "8000",
        "stream": "false",
    }

    assert ids(program.get(LIST, words)) == [str(made.id)]
    for name in words.keys() - {"from", "to"}:
        assert ids(program.get(LIST, {name: words[name]})) == [str(made.id)], name
    assert ids(program.get(LIST, {"to": words["from"]})) == []


def test_a_list_costs_the_same_number_of_queries_however_long_it_is(cast, with_key):
    cast.call()
    program = with_key("manager")
    program.get(LIST)
    with CaptureQueriesContext(connection) as few:
        program.get(LIST)
    cast.calls([{"key": key} for key in ("ci", "laptop", "manager")] * 20)

    with CaptureQueriesContext(connection) as many:
        program.get(LIST, {"page_size": 200})

    assert len(many) == len(few)


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_calls_are_only_read(cast, with_key, method):
    made = cast.call()

    assert getattr(with_key("manager"), method)(f"{LIST}{made.id}/").status_code == 405
    assert getattr(with_key("manager"), method)(LIST).status_code == 405
