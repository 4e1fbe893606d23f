import pytest
from django.db import connection
from django.db.utils import OperationalError

from console.api import calls as api_calls
from console.bounded import bounded
from console.calls import queries
from console.calls.filters import BadFilters

pytestmark = pytest.mark.django_db


def run(sql: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def test_a_search_that_takes_too_long_is_ended_and_names_the_range():
    with pytest.raises(BadFilters) as refusal, bounded(0.02):
        run("SELECT pg_sleep(20)::text")

    assert list(refusal.value.errors) == ["from"]
    assert run("SELECT 1") == 1


def test_the_limit_ends_with_the_block():
    with bounded(0.5):
        assert run("SHOW statement_timeout") == "500ms"

    assert run("SHOW statement_timeout") == "0"


def test_another_fault_stays_what_it_is():
    with pytest.raises(OperationalError), bounded():
        raise OperationalError("the disk is full")


@pytest.mark.parametrize("path", ["/calls/", "/api/v1/calls/"])
def test_a_list_that_cannot_be_searched_in_time_says_so(cast, signed_in, monkeypatch, path):
    monkeypatch.setattr(bounded.__wrapped__, "__defaults__", (0.02,))

    def endless(*_args, **_kwargs):
        run("SELECT pg_sleep(20)::text")

    monkeypatch.setattr(queries, "list_calls", endless)
    monkeypatch.setattr(api_calls, "list_calls", endless)

    page = signed_in("ann").get(path)

    assert "Choose a shorter time" in page.content.decode()
    assert page.status_code == (400 if path.startswith("/api") else 200)
