from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts import scope
from accounts.keys import fingerprint
from accounts.models import Key
from accounts.permissions import SYSTEM
from accounts.services.keys import KeyTerms, create_key, revoke_key

pytestmark = pytest.mark.django_db
NEW = {"name": "editor", "models_mode": "all"}


def stored(cast, name: str) -> Key | None:
    with scope.organization(cast.acme.pk):
        return Key.objects.select_related("member__user").filter(name=name).first()


def test_a_new_key_is_shown_once_and_only_its_fingerprint_is_kept(cast, signed_in, settings):
    response = signed_in("ann").post("/keys/new/", NEW)

    clear = response.context["clear"]
    key = stored(cast, "editor")
    assert response.status_code == 200
    assert clear in response.content.decode()
    assert response["Cache-Control"] == "no-store"
    assert bytes(key.fingerprint) == fingerprint(clear.encode(), settings.KEY_PEPPERS[0])
    assert clear not in signed_in("ann").get("/keys/").content.decode()


def test_all_terms_of_the_form_arrive(cast, signed_in):
    form = {
        "name": "nightly",
        "member": cast.members["erin"].pk,
        "models_mode": "some",
        "models": ["kimi-k2"],
        "budget": "12.5",
        "rpm": "60",
        "concurrency": "2",
        "expires_at": "2027-01-01T00:00",
        "manage": "on",
    }

    signed_in("adam").post("/keys/new/", form)

    key = stored(cast, "nightly")
    assert key.member_id == cast.members["erin"].pk
    assert key.allowed_models == ["kimi-k2"]
    assert (key.budget_nano, key.rpm, key.concurrency) == (12_500_000_000, 60, 2)
    assert key.expires_at == datetime(2026, 12, 31, 16, tzinfo=UTC)
    assert key.scopes == ["call", "manage"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "", "This field is required."),
        ("name", "ci", "has this name already"),
        ("name", "\u200b", "control characters"),
        ("member", "999999", "Select a valid choice"),
        ("budget", "-1", "greater than or equal to 0"),
        ("budget", "0.0000000001", "9 decimal places"),
        ("budget", "99999999999", "no more than"),
        ("rpm", "0", "greater than or equal to 1"),
        ("concurrency", "x", "Enter a whole number."),
        ("expires_at", "soon", "Enter a valid date/time."),
    ],
)
def test_what_cannot_be_is_told_beside_its_field(cast, signed_in, field, value, said):
    page = signed_in("ann").post("/keys/new/", {**NEW, field: value})

    assert page.status_code == 200
    assert said in page.context["form"].errors[field][0]
    assert f'id="id_{field}-error"' in page.content.decode()


def test_only_these_models_needs_a_model_and_one_on_offer(cast, signed_in):
    browser = signed_in("ann")

    none = browser.post("/keys/new/", {**NEW, "models_mode": "some"})
    unknown = browser.post("/keys/new/", {**NEW, "models_mode": "some", "models": ["gpt-unknown"]})

    assert none.context["form"].errors["models"] == ["Choose at least one model."]
    assert "models" in unknown.context["form"].errors
    assert stored(cast, "editor") is None


def test_another_organizations_member_cannot_be_given(cast, signed_in):
    page = signed_in("ann").post("/keys/new/", {**NEW, "member": cast.members["bob"].pk})

    assert "member" in page.context["form"].errors


def test_a_key_is_changed_and_keeps_what_the_form_does_not_show(cast, signed_in):
    path = f"/keys/{cast.keys['operator'].pk}/"

    response = signed_in("oli").post(
        f"{path}?organization=acme", {"name": "operator-2", "models_mode": "all", "rpm": "5"}
    )

    key = stored(cast, "operator-2")
    assert response.status_code == 302
    assert (key.rpm, key.scopes) == (5, ["operate"])


def test_a_refused_change_changes_nothing(cast, signed_in):
    page = signed_in("ann").post(
        f"/keys/{cast.keys['laptop'].pk}/", {"name": "ci", "models_mode": "all", "rpm": "7"}
    )

    assert "name" in page.context["form"].errors
    assert stored(cast, "laptop").rpm is None


def test_revoking_asks_first_and_keeps_the_reason(cast, signed_in):
    browser, path = signed_in("ann"), f"/keys/{cast.keys['ci'].pk}/revoke/"

    asked = browser.get(path)
    still_live = stored(cast, "ci").revoked_at
    done = browser.post(path, {"reason": "it leaked"})

    assert "cannot be undone" in asked.content.decode()
    assert still_live is None
    assert done.status_code == 302
    assert (stored(cast, "ci").revoked_at is not None, stored(cast, "ci").revoked_reason) == (
        True,
        "it leaked",
    )
    assert "it leaked" in browser.get(f"/keys/{cast.keys['ci'].pk}/").content.decode()
    assert "ci" in [row["key"].name for row in browser.get("/keys/", {"show": "revoked"}).context["rows"]]
    assert "ci" not in [row["key"].name for row in browser.get("/keys/").context["rows"]]


@pytest.mark.parametrize("name", ["erin", "fay"])
def test_who_may_not_manage_keys_can_change_none(cast, signed_in, name):
    browser, own = signed_in(name), cast.keys["laptop"].pk

    assert browser.post("/keys/new/", NEW).status_code == 403
    assert browser.post(f"/keys/{own}/revoke/").status_code == 403
    browser.post(f"/keys/{own}/", {"name": "mine", "models_mode": "all"})
    assert stored(cast, "mine") is None
    assert stored(cast, "laptop").revoked_at is None


def test_a_key_of_operators_can_be_read_and_takes_an_operator_to_change(cast, signed_in):
    path = f"/keys/{cast.keys['operator'].pk}/"
    browser = signed_in("ann")

    assert "<form" not in browser.get(path).content.decode().split("<main")[1]
    assert f'href="{path}revoke/' not in browser.get("/keys/").content.decode()
    assert browser.post(path, {**NEW, "rpm": 1}).status_code == 403
    assert browser.post(f"{path}revoke/").status_code == 403
    assert (stored(cast, "operator").rpm, stored(cast, "operator").revoked_at) == (None, None)
    browser = signed_in("oli")
    assert f'href="{path}revoke/' in browser.get("/keys/?organization=acme").content.decode()
    assert browser.post(f"{path}?organization=acme", {**NEW, "name": "site", "rpm": 1}).status_code == 302
    assert stored(cast, "site").rpm == 1


def test_an_employee_sees_their_own_keys_only(cast, signed_in):
    browser = signed_in("erin")

    assert [row["key"].name for row in browser.get("/keys/").context["rows"]] == ["laptop"]
    assert browser.get(f"/keys/{cast.keys['laptop'].pk}/").status_code == 200
    assert browser.get(f"/keys/{cast.keys['ci'].pk}/").status_code == 404


@pytest.mark.parametrize("path", ["/keys/{}/", "/keys/{}/revoke/"])
def test_another_organizations_key_is_404_and_stays_as_it_is(cast, signed_in, path):
    foreign, missing = cast.keys["bolt-ci"].pk, 10**30
    browser = signed_in("ann")

    for key_id in (foreign, missing):
        assert browser.get(path.format(key_id)).status_code == 404
        assert browser.post(path.format(key_id), NEW).status_code == 404
    with scope.organization(cast.bolt.pk):
        assert Key.objects.get(pk=foreign).revoked_at is None


def test_without_its_token_a_form_is_refused(cast):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(cast.users["ann"])

    for path in ("/keys/new/", f"/keys/{cast.keys['ci'].pk}/", f"/keys/{cast.keys['ci'].pk}/revoke/"):
        response = browser.post(path, NEW)
        assert response.status_code == 403
        assert "nothing was changed" in response.content.decode()
    assert stored(cast, "ci").revoked_at is None


def test_the_list_shows_state_and_what_is_spent_of_a_budget(cast, signed_in):
    with scope.organization(cast.acme.pk):
        Key.objects.filter(name="ci").update(budget_nano=10 * 10**9)
        Key.objects.filter(name="laptop").update(expires_at=datetime.now(UTC) - timedelta(days=1))
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE relay_ingest")
        cursor.execute(
            "INSERT INTO billing_spenttotal (organization_id, level, spent_nano, calls) VALUES (%s, %s, %s, 1)",
            [cast.acme.pk, f"k{cast.keys['ci'].pk}", 9_500_000_000],
        )
        cursor.execute("SET LOCAL ROLE relay_app")

    rows = {row["key"].name: row for row in signed_in("ann").get("/keys/").context["rows"]}

    assert (rows["ci"]["spent_nano"], rows["ci"]["used_share"]) == (9_500_000_000, 0.95)
    assert (rows["laptop"]["state"], rows["ci"]["state"]) == ("expired", "live")
    assert rows["laptop"]["used_share"] is None


def test_the_list_is_paged_and_costs_the_same_number_of_queries(cast, signed_in):
    browser = signed_in("ann")
    browser.get("/keys/")
    with CaptureQueriesContext(connection) as few:
        browser.get("/keys/")
    with scope.organization(cast.acme.pk):
        moment = datetime.now(UTC)
        for n in range(60):
            terms = KeyTerms(member=cast.members["erin" if n % 2 else "ann"])
            create_key(acting=SYSTEM, organization=cast.acme, name=f"k{n}", terms=terms)
        Key.objects.filter(name__startswith="k").update(created_at=moment)

    with CaptureQueriesContext(connection) as many:
        first = browser.get("/keys/")
    second = browser.get(first.context["next_url"])

    names = [row["key"].name for page in (first, second) for row in page.context["rows"]]
    assert len(many) == len(few)
    assert len(names) == len(set(names)) == 64
    assert browser.get("/keys/", {"cursor": "x"}).context["rows"] == []


def test_an_empty_list_says_what_to_do_next(cast, signed_in):
    assert "No key was revoked" in signed_in("ann").get("/keys/", {"show": "revoked"}).content.decode()
    with scope.organization(cast.acme.pk):
        revoke_key(acting=SYSTEM, key=cast.keys["laptop"])
    assert "Ask an owner or admin" in signed_in("erin").get("/keys/").content.decode()
