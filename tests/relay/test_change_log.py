"""The change log: a row for whatever the snapshot holds, and no commit missed, whatever the order."""

from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest
from django.db import connection
from psycopg.rows import scalar_row

from accounts import scope
from accounts.models import Organization
from accounts.permissions import SYSTEM
from accounts.services.keys import KeyTerms, create_key, revoke_key
from accounts.services.members import add_member
from accounts.services.organizations import create_organization
from billing.ledger import book_opening_credit
from billing.prices import PriceTerms, set_price
from relay.models import Change, Upstream
from relay.services.models import ModelTerms, RouteTerms, save_model, set_routes
from relay.services.upstreams import UpstreamTerms, save_upstream

HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
CHANGES = "SELECT row_id FROM relay_change WHERE xid >= %s::xid8 ORDER BY row_id"


@pytest.fixture
def log(db: None) -> Iterator[set[tuple[str, int]]]:
    """Filled with what was noted since the test took it."""
    with scope.site("test"):
        noted()  # of other tests, which share the database
        yield set()


def noted() -> set[tuple[str, int]]:
    found = set(Change.objects.values_list("kind", "row_id"))
    Change.objects.all().delete()
    return found


def organization() -> Organization:
    made = create_organization(acting=SYSTEM, name="acme", title="Acme")
    noted()
    return made


def test_an_organization_its_money_and_its_keys_are_noted(log) -> None:
    made = create_organization(acting=SYSTEM, name="acme", title="Acme")
    assert noted() == {("organization", made.pk)}
    Organization.objects.update(rpm=5)
    assert noted() == {("organization", made.pk)}
    book_opening_credit(acting=SYSTEM, organization=made, amount_nano=5)
    assert noted() == {("organization", made.pk)}
    key = create_key(acting=SYSTEM, organization=made, name="k", terms=KeyTerms()).key
    assert noted() == {("key", key.pk)}
    revoke_key(acting=SYSTEM, key=key)
    assert noted() == {("key", key.pk)}
    key.delete()
    assert {kind for kind, _ in noted()} == {"key"}


def test_upstreams_models_routes_and_prices_are_noted(log) -> None:
    terms = UpstreamTerms(protocol="openai", base_url="https://api.example.com/v1", credential="x")
    upstream = save_upstream(acting=SYSTEM, name="a", terms=terms)
    assert noted() == {("upstream", upstream.pk)}
    model = save_model(acting=SYSTEM, name="m", terms=ModelTerms())
    assert noted() == {("model", model.pk)}
    set_routes(acting=SYSTEM, model=model, routes=[RouteTerms(upstream, "m")])
    assert noted() == {("model", model.pk)}
    set_routes(acting=SYSTEM, model=model, routes=[])
    assert noted() == {("model", model.pk)}
    price, _ = set_price(acting=SYSTEM, model_name="m", terms=PriceTerms("CNY", Decimal(1), Decimal(2)))
    assert noted() == {("price", price.pk)}
    Upstream.objects.all().delete()
    assert noted() == {("upstream", upstream.pk)}


def test_a_route_that_moves_is_noted_for_both_models(log) -> None:
    upstream = save_upstream(
        acting=SYSTEM, name="a", terms=UpstreamTerms("openai", "https://api.example.com/v1", "x")
    )
    first, second = (save_model(acting=SYSTEM, name=name, terms=ModelTerms()) for name in ("m", "n"))
    set_routes(acting=SYSTEM, model=first, routes=[RouteTerms(upstream, "m")])
    noted()
    first.routes.update(model=second)
    assert noted() == {("model", first.pk), ("model", second.pk)}


def test_what_the_snapshot_does_not_hold_is_not_noted(log) -> None:
    made = organization()
    add_member(acting=SYSTEM, organization=made, email="ann@acme.example", role="owner")
    assert noted() == set()


@pytest.fixture
def open_connection(django_db_setup: None, django_db_blocker) -> Iterator:
    """Opens connections of the application beside Django's, and takes the models of the test away afterwards."""
    settings = connection.settings_dict
    keys = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    info = {name: str(settings[key]) for name, key in keys.items() if settings[key]}
    made: list[psycopg.Connection] = []
    with psycopg.connect(**info, options="-c role=relay_owner", autocommit=True) as owner:
        owner.execute("TRUNCATE relay_change")

    def opened(role: str = "relay_app", *, autocommit: bool = False) -> psycopg.Connection:
        made.append(
            psycopg.connect(**info, options=f"-c role={role}", row_factory=scalar_row, autocommit=autocommit)
        )
        return made[-1]

    yield opened
    for each in made:
        each.close()
    with psycopg.connect(**info, options="-c role=relay_owner", autocommit=True) as owner:
        owner.execute("TRUNCATE relay_model, relay_change CASCADE")


INSERT = """
    INSERT INTO relay_model (name, aliases, kind, context_tokens, hold_output_tokens, enabled, created_at)
    VALUES (%s, '{}', 'chat', 1, 1, true, now()) RETURNING id
"""


def test_a_transaction_that_began_first_and_commits_last_is_not_missed(open_connection) -> None:
    slow, quick, reader = open_connection(), open_connection(), open_connection(autocommit=True)
    late = slow.execute(INSERT, ["late"]).fetchone()
    early = quick.execute(INSERT, ["early"]).fetchone()
    quick.commit()
    # The reader looks while the first transaction is still open, as the loader does: horizon first.
    horizon = reader.execute(HORIZON).fetchone()
    assert reader.execute(CHANGES, ["0"]).fetchall() == [early]
    slow.commit()
    assert late in reader.execute(CHANGES, [horizon]).fetchall()
    after = reader.execute(HORIZON).fetchone()
    assert reader.execute(CHANGES, [after]).fetchall() == []


def test_a_change_that_is_taken_back_leaves_nothing(open_connection) -> None:
    writer, reader = open_connection(), open_connection(autocommit=True)
    writer.execute(INSERT, ["never"])
    writer.rollback()
    assert reader.execute(CHANGES, ["0"]).fetchall() == []


def test_a_change_in_a_savepoint_carries_the_whole_transaction(open_connection) -> None:
    writer, reader = open_connection(), open_connection(autocommit=True)
    horizon = reader.execute(HORIZON).fetchone()
    with writer.transaction(), writer.transaction():
        writer.execute(INSERT, ["inner"])
        own = writer.execute("SELECT pg_current_xact_id()::text").fetchone()
    assert reader.execute("SELECT xid::text FROM relay_change").fetchall() == [own]
    assert len(reader.execute(CHANGES, [horizon]).fetchall()) == 1


def test_a_commit_notifies_who_listens(open_connection) -> None:
    writer, reader = open_connection(), open_connection(autocommit=True)
    reader.execute("LISTEN yizhan_changes")
    writer.execute(INSERT, ["told"])
    writer.commit()
    assert [notice.channel for notice in reader.notifies(timeout=5, stop_after=1)] == ["yizhan_changes"]
