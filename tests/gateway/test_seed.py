"""What a first start makes, and what a later one leaves alone."""

import io
import json
import re

import pytest
from django.conf import settings as site_settings
from django.core.management import call_command

from accounts import scope
from accounts.keys import fingerprint
from accounts.models import Key, Member, Organization, User
from billing.models import Account, LedgerEntry, Price
from gateway import env
from relay.models import Model, Upstream

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def everything(db: None, monkeypatch: pytest.MonkeyPatch, settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick
    monkeypatch.delenv("PRACTICE", raising=False)
    monkeypatch.setenv("PRACTICE_PORT", "9123")
    with scope.site("test"):
        yield


def seed() -> str:
    out = io.StringIO()
    call_command("seed", stdout=out)
    return out.getvalue()


def test_a_first_start_makes_a_demonstration_that_can_be_used() -> None:
    console, key = seed().splitlines()
    found = re.fullmatch(r"console: (http\S+) login (\S+) password (\S+)", console)
    assert found
    owner = User.objects.get(email=found[2])
    assert owner.check_password(found[3])
    assert owner.is_operator
    assert Member.objects.get(user=owner).role == "owner"
    clear = key.removeprefix("key: ")
    row = Key.objects.get()
    assert bytes(row.fingerprint) == fingerprint(clear.encode(), site_settings.KEY_PEPPERS[0])
    assert (row.organization.name, row.organization.currency) == ("demo", "CNY")
    assert LedgerEntry.objects.get(account=Account.WALLET).amount_nano == 100 * 10**9


def test_a_later_start_prints_and_makes_nothing() -> None:
    seed()
    counts = [model.objects.count() for model in (Organization, User, Key, LedgerEntry)]
    assert seed() == ""
    assert [model.objects.count() for model in (Organization, User, Key, LedgerEntry)] == counts


def test_a_database_that_was_given_gets_no_practice_models() -> None:
    seed()
    assert not Model.objects.exists()
    assert not Upstream.objects.exists()


def test_practice_models_are_free_and_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRACTICE", "1")
    seed()
    upstream = Upstream.objects.get()
    assert (upstream.name, upstream.base_url, upstream.allow_private) == (
        "practice",
        "http://127.0.0.1:9123/v1",
        True,
    )
    assert set(Model.objects.values_list("name", flat=True)) == {
        "practice-chat",
        "practice-embedding",
        "practice-fast",
        "practice-reasoner",
    }
    assert {model.kind for model in Model.objects.filter(name="practice-embedding")} == {"embedding"}
    assert {(price.input, price.output) for price in Price.objects.all()} == {(0, 0)}
    assert all(model.routes.get().upstream == upstream for model in Model.objects.all())


def test_the_embedded_database_gets_practice_models() -> None:
    run = env.var_dir() / "run"
    run.mkdir(parents=True, exist_ok=True)
    servers = run / "servers.json"
    servers.write_text(json.dumps({"database_url": env.database_url()}))
    try:
        seed()
    finally:
        servers.unlink()
    assert Upstream.objects.filter(name="practice").exists()


def test_practice_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRACTICE", "0")
    seed()
    assert not Upstream.objects.exists()


def test_a_later_start_follows_the_practice_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRACTICE", "1")
    seed()
    monkeypatch.setenv("PRACTICE_PORT", "9999")
    assert seed() == ""
    assert Upstream.objects.get().base_url == "http://127.0.0.1:9999/v1"


def test_an_upstream_that_somebody_pointed_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRACTICE", "1")
    seed()
    Upstream.objects.update(base_url="https://practice.example.com/v1")
    monkeypatch.setenv("PRACTICE_PORT", "9999")
    seed()
    assert Upstream.objects.get().base_url == "https://practice.example.com/v1"
