import pytest
from django.db import connection
from django.test import Client

pytestmark = pytest.mark.django_db


def test_a_process_that_answers_lives():
    assert Client().get("/healthz").json() == {"status": "ok"}


def test_ready_is_when_database_and_stores_answer(store):
    response = Client().get("/readyz")

    assert response.status_code == 200
    assert response.json() == {"status": "ok", "database": "ok", "store": "ok", "limits": "ok"}


def test_a_missing_migration_is_not_ready(store):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE relay_owner")
        cursor.execute("DELETE FROM django_migrations WHERE app = 'relay' AND name = '0002_change_log'")
        cursor.execute("SET LOCAL ROLE relay_app")

    response = Client().get("/readyz")

    assert response.status_code == 503
    assert response.json()["database"] == "migrations pending"


@pytest.mark.parametrize(("setting", "part"), [("REDIS_URL", "store"), ("LIMITS_REDIS_URL", "limits")])
def test_a_store_that_is_away_is_not_ready(store, settings, setting, part):
    setattr(settings, setting, "redis://127.0.0.1:1/0")

    response = Client().get("/readyz")

    assert response.status_code == 503
    assert response.json()[part] == "away"
    assert "127.0.0.1" not in response.content.decode()


def test_a_database_that_is_away_is_not_ready(store, monkeypatch):
    from django.db.migrations.recorder import MigrationRecorder
    from django.db.utils import OperationalError

    def away(_self):
        raise OperationalError("no route to 10.0.0.7")

    monkeypatch.setattr(MigrationRecorder, "applied_migrations", away)

    response = Client().get("/readyz")

    assert (response.status_code, response.json()["database"]) == (503, "away")
    assert "10.0.0.7" not in response.content.decode()


def test_a_broken_page_says_so_without_needing_anything_that_may_be_broken(cast, signed_in, monkeypatch):
    def broken(*_args):
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr("console.overview.views.read_overview", broken)
    browser = signed_in("ann")
    browser.raise_request_exception = False

    response = browser.get("/")

    assert response.status_code == 500
    assert "Something broke" in response.content.decode()
    assert "secret" not in response.content.decode()
