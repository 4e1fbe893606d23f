"""The database away under load, and both servers away when the relay starts."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pytest

from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer, RawClient
from tests.fakes.relay_process import RelayProcess
from tests.fakes.tcp_proxy import TcpProxy, running_proxy
from tests.wire.siblings import Siblings
from tests.wire.test_kill import Load, wait_for
from tests.wire.world import Tenant, World, eventually

BACK_S = 5.0


@pytest.mark.parametrize(
    "away_s", [3, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(300)], id="a-minute")]
)
def test_calls_go_on_while_the_database_is_away_and_are_recorded_afterwards(
    siblings: Siblings, practice: PracticeProcess, away_s: float
) -> None:
    tenant = siblings.worlds[0].tenant(practice.url)
    away = siblings.known_to_all(tenant)[0]
    load = Load(away)
    try:
        wait_for(load, 30)
        siblings.database.cut()
        recorded = len(tenant.records())
        until = time.monotonic() + away_s
        while time.monotonic() < until:
            wait_for(load, 10)
        # What one process cannot bring into the books nobody else does.
        assert len(tenant.records()) <= recorded + 1
        siblings.database.restore()
        wait_for(load, 30)
    finally:
        load.stop()
    assert load.broken == 0
    assert {answer.status for answer in load.answered} == {200}
    records = tenant.check_books(len(load.answered))
    assert {str(record.id) for record in records} == {answer.call_id for answer in load.answered}
    assert {record.status for record in records} == {"ok"}


def proxied(url: str, port: int) -> str:
    """A store's address by way of a proxy."""
    parts = urlsplit(url)
    return f"redis://:{parts.password}@127.0.0.1:{port}{parts.path}"


@pytest.fixture
def away_at_start(
    relay_env: dict[str, str], tmp_path: Path, django_db_blocker
) -> Iterator[tuple[World, list[TcpProxy]]]:
    """A relay that was started while neither its database nor its store could be reached."""
    database, store = urlsplit(os.environ["DATABASE_URL"]), urlsplit(os.environ["REDIS_URL"])
    where = parse_qs(database.query)
    assert store.hostname is not None
    assert store.port is not None
    with (
        running_proxy(Path(where["host"][0]) / f".s.PGSQL.{where['port'][0]}") as one,
        running_proxy((store.hostname, store.port)) as other,
        django_db_blocker.unblock(),
    ):
        one.cut()
        other.cut()
        query = urlencode({"host": "127.0.0.1", "port": str(one.port)})
        env = {
            **relay_env,
            "DATABASE_URL": urlunsplit(database._replace(query=query)),
            "LIMITS_REDIS_URL": proxied(os.environ["REDIS_URL"], other.port),
        }
        relay = RelayProcess(tmp_path / "relay", env)
        relay.launch()
        world = World(relay)
        yield world, [one, other]
        world.close()
        relay.close()


def look_at(relay: RelayProcess, path: str) -> Answer:
    with RawClient(relay.port) as client:
        client.request("GET", path)
        return client.read_answer()


def check_not_ready(tenant: Tenant, headers: dict[str, str | None]) -> None:
    answer = tenant.send(tenant.body(), headers=headers)
    assert (answer.status, answer.error["code"]) == (503, "not_ready")
    assert answer.error["type"] == "service_unavailable_error"
    assert int(answer.headers["retry-after"]) >= 1


def test_a_relay_that_starts_alone_lives_and_serves_soon_after_its_servers_are_back(
    away_at_start: tuple[World, list[TcpProxy]], practice: PracticeProcess
) -> None:
    world, proxies = away_at_start
    tenant = world.tenant(practice.url, is_known=False)
    assert look_at(world.relay, "/healthz").status == 200
    assert look_at(world.relay, "/readyz").status == 503
    check_not_ready(tenant, {})
    check_not_ready(tenant, {"authorization": "Bearer sk-nobody-knows-this-one"})
    for proxy in proxies:
        proxy.restore()
    began = time.monotonic()
    eventually(lambda: look_at(world.relay, "/readyz").status == 200, within_s=20)
    eventually(lambda: tenant.ask().status == 200, within_s=20)
    assert time.monotonic() - began < BACK_S
    answer = tenant.send(tenant.body(), headers={"authorization": "Bearer sk-nobody-knows-this-one"})
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert "Traceback" not in world.relay.log
