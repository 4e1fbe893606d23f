"""One relay and one practice provider for the session; each test builds the tenants it needs."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import redis

from gateway.secret_store import load_secrets
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.relay_process import RelayProcess
from tests.fakes.tables import empty_tables
from tests.fakes.tcp_proxy import TcpProxy, database_socket, running_proxy
from tests.wire.gate import MakeRush, Rush
from tests.wire.siblings import Siblings
from tests.wire.world import Tenant, World


@pytest.fixture(scope="session")
def relay_env(database: str) -> dict[str, str]:
    """What a relay process must share with the tests to open what they seal. The store begins empty."""
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as store:
        store.flushdb()
    return dict(load_secrets(Path(os.environ["VAR_DIR"])))


@pytest.fixture(scope="module", autouse=True)
def left_empty(database: str) -> Iterator[None]:
    """The relay keeps in memory what is gone then; names are never used twice."""
    yield
    empty_tables(database)


@pytest.fixture(scope="session")
def relay(relay_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    """The relay that most tests share."""
    process = RelayProcess(tmp_path_factory.mktemp("relay"), relay_env)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture(scope="session")
def practice() -> Iterator[PracticeProcess]:
    provider = PracticeProcess()
    yield provider
    provider.close()


@pytest.fixture
def make_relay(
    relay_env: dict[str, str], tmp_path: Path, django_db_blocker
) -> Iterator[Callable[..., World]]:
    """Starts a relay of the test's own, with variables of its own, and gives the world round it."""
    worlds: list[World] = []
    with django_db_blocker.unblock():

        def make(*, workers: int = 1, command: Sequence[str] | None = None, **env: str) -> World:
            folder = tmp_path / f"relay-{len(worlds)}"
            folder.mkdir()
            more = {} if command is None else {"command": command}
            made = World(RelayProcess(folder, {**relay_env, **env}, workers=workers, **more))
            worlds.append(made)
            made.relay.start()
            return made

        yield make
        for made in worlds:
            made.close()
            made.relay.close()


@pytest.fixture(scope="module")
def two_relays(
    relay_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory, django_db_blocker
) -> Iterator[Siblings]:
    """Two relay processes with a limit store of their own, for the tests of one module."""
    with django_db_blocker.unblock():
        made = Siblings(tmp_path_factory.mktemp("siblings") / "two", relay_env)
        yield made
        made.close()


@pytest.fixture
def siblings(two_relays: Siblings, django_db_blocker) -> Iterator[Siblings]:
    """The two relay processes, both running and with the database in reach, whatever the test before did to them."""
    with django_db_blocker.unblock():
        two_relays.start()
        yield two_relays


@pytest.fixture
def rush() -> Iterator[MakeRush]:
    """Sends many calls at once; those that a failed test leaves open are closed."""
    made: list[Rush] = []

    def send(callers: Sequence[Tenant], calls: int) -> Rush:
        made.append(Rush(callers, calls))
        return made[-1]

    yield send
    for calls in made:
        calls.close()


@pytest.fixture
def world(relay: RelayProcess, django_db_blocker) -> Iterator[World]:
    """Builds tenants on the shared relay."""
    with django_db_blocker.unblock():
        made = World(relay)
        yield made
        made.close()


@pytest.fixture
def database_proxy() -> Iterator[TcpProxy]:
    """What stands between a relay and the database in tests in which it goes away."""
    with running_proxy(database_socket()) as proxy:
        yield proxy
