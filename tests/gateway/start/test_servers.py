"""Practice watch and given servers, against real ones."""

import shutil
import socket
from collections.abc import Iterator

import psycopg
import pytest

from gateway.embedded import Servers, running_servers
from gateway.embedded.ports import free_port, is_free
from gateway.env import EnvError
from gateway.start import database
from gateway.start.practice import PracticeWatch, choose_port
from tests.gateway.processes import make_place


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    folder = make_place()
    with running_servers(folder) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture
def models(servers) -> Iterator[psycopg.Connection]:
    """The table of models, walled like the real one: seen only by a named reason."""
    with psycopg.connect(servers.database_url, options="-c role=relay_owner", autocommit=True) as owner:
        owner.execute("CREATE TABLE relay_model (name text, enabled boolean)")
        owner.execute("ALTER TABLE relay_model ENABLE ROW LEVEL SECURITY")
        owner.execute(
            "CREATE POLICY app ON relay_model TO relay_app USING (current_setting('app.site', true) <> '')"
        )
        yield owner
        owner.execute("DROP TABLE relay_model")


async def test_practice_is_wanted_while_a_practice_model_is_enabled(servers, models):
    watch = PracticeWatch(servers.database_url)
    assert await watch.is_wanted() is False
    models.execute("INSERT INTO relay_model VALUES ('practice-chat', false), ('kimi-k2', true)")
    assert await watch.is_wanted() is False
    models.execute("UPDATE relay_model SET enabled = true")
    assert await watch.is_wanted() is True
    models.execute("DELETE FROM relay_model WHERE name LIKE 'practice-%'")
    assert await watch.is_wanted() is False
    await watch.aclose()


async def test_a_database_that_cannot_say_changes_nothing(servers, models):
    watch = PracticeWatch(servers.database_url)
    models.execute("INSERT INTO relay_model VALUES ('practice-chat', true)")
    assert await watch.is_wanted() is True
    with psycopg.connect(servers.postgres.admin_url(), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'yizhan' AND pid <> %s",
            (models.info.backend_pid,),
        )
        admin.execute("ALTER ROLE yizhan NOLOGIN")
        assert await watch.is_wanted() is None
        assert await watch.is_wanted() is None
        admin.execute("ALTER ROLE yizhan LOGIN")
    assert await watch.is_wanted() is True
    await watch.aclose()


async def test_given_servers_are_waited_for_and_roles_seen_to(servers):
    said = []
    await database.wait_for_database(servers.database_url, said.append)
    await database.wait_for_redis(servers.redis_url, said.append)
    database.see_to_roles(servers.database_url)
    assert said == []


async def test_a_server_that_never_answers_is_told_by_variable(place):
    said = []
    nowhere = f"postgresql://ann:hunter2@/books?host={place}"
    with pytest.raises(EnvError, match=r"DATABASE_URL: the database books on .* does not answer"):
        await database.wait_for_database(nowhere, said.append, wait_s=0.1)
    nowhere = f"redis://:hunter2@127.0.0.1:{free_port('127.0.0.1')}"
    with pytest.raises(EnvError, match=r"REDIS_URL: the server at 127\.0\.0\.1 does not answer"):
        await database.wait_for_redis(nowhere, said.append, wait_s=0.1)
    assert [text.endswith("; waiting") for text in said] == [True, True]
    assert "hunter2" not in "".join(said)


def test_the_practice_port_stays_the_same_while_it_is_free(place):
    port = choose_port(place)
    assert choose_port(place) == port
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert not is_free("127.0.0.1", port)
        moved = choose_port(place)
    assert moved != port
    assert choose_port(place) == moved


@pytest.mark.parametrize("text", ["", "many", "-5"])
def test_a_damaged_record_of_the_port_is_replaced(place, text):
    (place / "practice.port").write_text(text)
    assert choose_port(place) == choose_port(place)
