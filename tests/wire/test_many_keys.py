"""A hundred thousand keys on two processes under load: what is revoked is refused soon, and guessers starve nobody."""

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import quote

import psutil
import pytest
from django.db import connection

from accounts import scope
from accounts.permissions import SYSTEM
from accounts.services.keys import revoke_key
from tests.fakes.crowd import fill_with_crowd
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import RawClient
from tests.fakes.relay_process import RelayProcess
from tests.wire.world import Tenant, World, eventually

log = logging.getLogger(__name__)

KEYS = 100_000
SOON_S = 1.0
GUESSES = 1_000
# Bytes of a relay process that has just become ready, with the keys and without.
resident: dict[str, int] = {}


@pytest.fixture(scope="module")
def relays(
    database: str, relay_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RelayProcess]]:
    made = [RelayProcess(tmp_path_factory.mktemp("relay"), relay_env) for _ in range(2)]
    try:
        made[0].start()
        resident["without"] = psutil.Process(made[0].pid).memory_info().rss
        made[0].stop()
        fill_with_crowd(database, KEYS)
        for relay in made:
            relay.start()
        resident["with"] = psutil.Process(made[0].pid).memory_info().rss
        yield made
    finally:
        for relay in made:
            relay.close()


@pytest.fixture
def tenants(
    relays: list[RelayProcess], practice: PracticeProcess, django_db_blocker
) -> Iterator[list[Tenant]]:
    """One tenant, as seen by callers of each process."""
    with django_db_blocker.unblock():
        worlds = [World(relay) for relay in relays]
        made = worlds[0].tenant(practice.url)
        found = [replace(made, world=world) for world in worlds]
        for tenant in found:
            eventually(lambda tenant=tenant: tenant.ask().status == 200)
        yield found
        for world in worlds:
            world.close()


def test_a_key_weighs_less_than_500_bytes_in_a_relay(tenants: list[Tenant]) -> None:
    log.info("a relay takes %(without)d bytes, and %(with)d with all keys", resident)
    assert (resident["with"] - resident["without"]) / KEYS < 500


@contextmanager
def load(tenants: list[Tenant]) -> Iterator[list[int]]:
    """Calls on every process, one after the other on each of two connections, while it lasts: their statuses."""
    statuses: list[int] = []
    is_over = threading.Event()

    def call(tenant: Tenant) -> None:
        with RawClient(tenant.world.relay.port) as client:
            while not is_over.is_set():
                headers = {**tenant.auth, "content-type": "application/json"}
                client.request("POST", "/v1/chat/completions", headers, tenant.body("@practice tokens=2@"))
                statuses.append(client.read_answer().status)

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(call, tenant) for tenant in tenants for _ in range(2)]
        try:
            yield statuses
        finally:
            is_over.set()
            for each in calls:
                each.result(20)


def status_of(tenant: Tenant, clear: str) -> int:
    target = f"/v1/models/{quote(tenant.model.name)}"
    return tenant.send(b"", method="GET", path=target, headers={"authorization": f"Bearer {clear}"}).status


def all_have(tenants: list[Tenant], clear: str, status: int) -> bool:
    return all(status_of(tenant, clear) == status for tenant in tenants)


def revoke_one(tenants: list[Tenant]) -> float:
    """Seconds from the commit until no process lets the key in."""
    key, clear = tenants[0].world.key(tenants[0].organization)
    eventually(partial(all_have, tenants, clear, 200), within_s=SOON_S)
    with scope.site("test"):
        revoke_key(acting=SYSTEM, key=key)
    began = time.monotonic()
    eventually(partial(all_have, tenants, clear, 401), within_s=SOON_S)
    return time.monotonic() - began


def test_a_revoked_key_is_refused_everywhere_within_a_second(tenants: list[Tenant]) -> None:
    with load(tenants) as statuses:
        took = [revoke_one(tenants) for _ in range(5)]
        eventually(lambda: len(statuses) > 100, within_s=20)
    log.info("a key was refused on both processes after %s s", [round(each, 3) for each in took])
    assert set(statuses) == {200}


@contextmanager
def guessing(tenant: Tenant) -> Iterator[list[int]]:
    """Different wrong keys, as fast as four connections send them: what they were told."""
    told: list[int] = []
    numbers = itertools.count()

    def guess() -> None:
        with RawClient(tenant.world.relay.port) as client:
            while (number := next(numbers)) < GUESSES:
                wrong = {"authorization": f"Bearer sk-yz-wrong-{time.time_ns()}-{number}"}
                client.request("GET", "/v1/models", wrong)
                told.append(client.read_answer().status)

    with ThreadPoolExecutor(4) as pool:
        guesses = [pool.submit(guess) for _ in range(4)]
        yield told
        for each in guesses:
            each.result(60)


def connections_of_relays() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'yizhan relay'"
        )
        return int(cursor.fetchone()[0])


def test_guessed_keys_starve_nobody(tenants: list[Tenant]) -> None:
    process = psutil.Process(tenants[0].world.relay.pid)
    before, connections = process.memory_info().rss, connections_of_relays()
    with load(tenants) as statuses, guessing(tenants[0]) as told:
        took = [revoke_one(tenants) for _ in range(3)]
        # One for look-ups at each process that had none yet.
        assert connections_of_relays() <= connections + 2
    log.info("while %d keys were guessed, a revoked one was refused after %s s", len(told), took)
    assert set(statuses) == {200}
    assert len(told) == GUESSES
    assert set(told) == {401}
    assert process.memory_info().rss - before < 16 * 2**20
