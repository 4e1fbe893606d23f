"""A real Valkey for the tests of the limit store: one per run, own port and password, nothing on disk."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
import redis

from relay.admission.permit import Permits
from relay.admission.scripts import PERMIT_SCRIPTS
from relay.admission.store import Store
from tests.relay.admission.valkey_server import Clock, ValkeyServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path_factory.mktemp("v"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that the test may kill."""
    server = ValkeyServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
async def store(server: ValkeyServer) -> AsyncIterator[Store]:
    store = Store(server.url, scripts=PERMIT_SCRIPTS, timeout_s=5.0)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def permits(store: Store, clock: Clock) -> Permits:
    return Permits(store, clock_ms=clock)


_ORGANIZATIONS = count(1)


@pytest.fixture
def fresh_id() -> int:
    """An organization that the store has never heard of."""
    return next(_ORGANIZATIONS)


@pytest.fixture
async def acme(permits: Permits, fresh_id: int) -> int:
    """An organization that has spent nothing yet."""
    assert await permits.initialise(fresh_id, {})
    return fresh_id
