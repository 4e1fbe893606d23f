"""Ready is who can take a call: `/readyz` tries the limit store and the journal, and `/healthz` stays as it is."""

import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from gateway.embedded import Temporaries, Valkey
from gateway.health import FRESH_S
from gateway.supervisor import Child, make_lifeline
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.tcp_proxy import TcpProxy, database_through
from tests.gateway.processes import make_place
from tests.wire.world import World, eventually

# A store that is stopped is found out by calls that wait for it a second each.
SOON_S = 15.0
TUNED = str(Path(__file__).with_name("tuned_relay.py"))


class OwnStore:
    """A Valkey of the test's own, which it may spoil."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.process = psutil.Process(pid)
        self.client = redis.Redis.from_url(url)


@pytest.fixture
def store() -> Iterator[OwnStore]:
    folder = make_place()
    for name in ("run", "log"):
        (folder / name).mkdir()
    lifeline = make_lifeline()
    server = Valkey(folder, Temporaries(folder / "run"))
    server.prepare()
    child = Child(server.spec(0), lifeline=lifeline, log_dir=folder / "log")
    child.start()
    eventually(server.is_ready, within_s=30)
    assert child.pid is not None
    own = OwnStore(server.url(), child.pid)
    yield own
    own.client.close()
    child.send(signal.SIGKILL)
    eventually(lambda: child.poll() is not None)
    lifeline.close()
    shutil.rmtree(folder)


def state(world: World) -> tuple[int, list[str]]:
    """The status of `/readyz` and its reasons; the process is alive all the while."""
    url = world.relay.url
    live = httpx.get(f"{url}/healthz", trust_env=False)
    assert (live.status_code, live.json()) == (200, {"status": "ok"})
    ready = httpx.get(f"{url}/readyz", trust_env=False, timeout=20)
    body = ready.json()
    assert body["status"] == ("ok" if ready.status_code == 200 else "not ready")
    return ready.status_code, body.get("reasons", [])


def becomes(world: World, *reasons: str) -> None:
    """Wait until these are the reasons, or until it is ready if there are none."""
    expected = (503 if reasons else 200, list(reasons))
    eventually(lambda: state(world) == expected, within_s=SOON_S)


def out_of_memory(store: OwnStore) -> None:
    store.client.config_set("maxmemory", 1)


def read_only(store: OwnStore) -> None:
    store.client.replicaof("127.0.0.1", "1")


@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        (out_of_memory, lambda store: store.client.config_set("maxmemory", 0)),
        (read_only, lambda store: store.client.replicaof("NO", "ONE")),
    ],
    ids=["out of memory", "read-only"],
)
def test_a_store_that_takes_no_writes_makes_it_not_ready(
    make_relay: Callable[..., World],
    practice: PracticeProcess,
    store: OwnStore,
    spoil: Callable[[OwnStore], None],
    mend: Callable[[OwnStore], None],
) -> None:
    world = make_relay(LIMITS_REDIS_URL=store.url)
    tenant = world.tenant(practice.url)
    assert tenant.ask().status == 200
    spoil(store)
    becomes(world, "the limit store answers, but takes no writes: it is out of memory, full or read-only")
    # What it says is what a call meets.
    assert tenant.ask().error["code"] == "limits_unavailable"
    mend(store)
    becomes(world)
    eventually(lambda: tenant.ask().status == 200)


def test_a_store_that_is_silent_or_gone_makes_it_not_ready(
    make_relay: Callable[..., World], store: OwnStore
) -> None:
    world = make_relay(LIMITS_REDIS_URL=store.url)
    store.process.suspend()
    becomes(world, "the limit store does not answer")
    store.process.resume()
    becomes(world)
    store.process.kill()
    becomes(world, "the limit store does not answer")


def test_a_journal_that_cannot_be_written_makes_it_not_ready(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay()
    tenant = world.tenant(practice.url)
    assert tenant.ask().status == 200
    # No file of this process may grow: as on a full disk.
    resource.prlimit(world.relay.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    becomes(world, "the journal cannot be written: File too large")
    assert tenant.ask().status == 503
    resource.prlimit(world.relay.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    becomes(world)
    assert tenant.ask().status == 200
    assert not list((world.relay.var_dir / "journal").glob("*.probe"))


def test_a_journal_at_its_limit_makes_it_not_ready(
    make_relay: Callable[..., World], practice: PracticeProcess, database_proxy: TcpProxy
) -> None:
    world = make_relay(command=[TUNED, "journal_bytes=1"], DATABASE_URL=database_through(database_proxy))
    tenant = world.tenant(practice.url)
    assert tenant.ask().status == 200
    tenant.check_books(1)
    becomes(world)
    database_proxy.cut()
    assert tenant.ask().status == 200
    becomes(world, "the journal is at its limit: the database has not taken its records for long")
    assert tenant.ask().status == 503
    database_proxy.restore()
    becomes(world)


def test_many_who_ask_cost_the_store_little(make_relay: Callable[..., World], store: OwnStore) -> None:
    world = make_relay(LIMITS_REDIS_URL=store.url)

    def writes() -> int:
        return int(store.client.info("commandstats").get("cmdstat_set", {"calls": 0})["calls"])

    before, began = writes(), time.monotonic()
    with httpx.Client(trust_env=False) as client:
        for _ in range(100):
            assert client.get(f"{world.relay.url}/readyz").status_code == 200
    assert writes() - before <= 1 + (time.monotonic() - began) / FRESH_S
    assert writes() >= 1
