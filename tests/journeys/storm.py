"""A running product under load, somebody who kills its processes, and an auditor who looks at the books afterwards."""

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil
import psycopg
import redis

from relay.admission.permit import PERMIT_SCRIPTS, Granted, LevelLimits, PermitRequest, Permits
from relay.admission.scripts import parse_use, use_key
from relay.admission.store import Store
from relay.admission.sweep import sweep_holds
from tests.fakes.product import Product
from tests.fakes.raw_client import RawClient

__all__ = ["TARGETS", "Auditor", "Callers", "Killer", "port_of", "site"]

KEY = "sk-yz-storm-00000000000000000000000000000000000000000"
MODEL = "stormy"
OPENING_NANO = 1_000_000 * 10**9
# What a process is told apart by, in its command line.
TARGETS = {
    "relay": "gateway.serve relay",
    "console": "gateway.serve console",
    "worker": "-A gateway worker",
    "postgres": "postgres -D",
    "valkey": "valkey-server",
}
LEASE_S = 100


def site(upstream_url: str) -> str:
    """One organization with one key, and one model with a price, behind an upstream that is not ours to kill."""
    return f"""
upstreams:
  - {{name: calm, protocol: openai, base_url: "{upstream_url}", credential: x, allow_private: true, probe: false}}
models:
  - name: {MODEL}
    price: {{currency: CNY, input: "2.00", cached_input: "0.20", output: "10.00"}}
    routes: [{{upstream: calm, upstream_model: practice-fast}}]
organizations:
  - name: acme
    title: Acme Ltd
    balance: {{CNY: "1000000.00"}}
    keys: [{{name: storm, value: {KEY}, scopes: [call]}}]
"""


class Callers:
    """Programs that go on calling until told to stop: streams, plain calls, and some that hang up.

    `ended` are the ids of the calls whose last byte came; `refused` counts the codes of answers that say why not.
    """

    def __init__(self, port: int, *, threads: int, seed: int) -> None:
        self.ended: list[str] = []
        self.refused: Counter[str] = Counter()
        self.broken = 0
        self.wrong: list[object] = []
        self._port = port
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._go_on, args=(random.Random(seed + number),))
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _go_on(self, rng: random.Random) -> None:
        while not self._stop.is_set():
            try:
                self._call(rng)
            except (ConnectionError, TimeoutError):
                self.broken += 1
                self._stop.wait(0.05)

    def _call(self, rng: random.Random) -> None:
        is_stream, is_leaving = rng.random() < 0.6, rng.random() < 0.1
        text = f"@practice tokens={rng.randrange(2, 30)},gap_ms={rng.choice([0, 5, 20])}@"
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": is_stream}
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        with RawClient(self._port, timeout_s=30.0) as client:
            client.request("POST", "/v1/chat/completions", headers, json.dumps(body).encode())
            answer = client.read_head()
            if is_leaving and answer.status == 200:
                client.reset()
                return
            client.read_rest(answer)
        if answer.status == 200 and (answer.is_done if is_stream else answer.json["usage"]):
            self.ended.append(answer.call_id)
        elif answer.status in (502, 503) or (answer.status == 200 and is_stream):
            self.refused[str(answer.error["code"])] += 1
            self._stop.wait(0.05)
        else:
            self.wrong.append((answer.status, answer.body[:300]))


class Killer:
    """kill -9 of the product's processes in random order, each time until everything has come back by itself."""

    def __init__(self, product: Product, callers: Callers, *, seed: int) -> None:
        self._product = product
        self._callers = callers
        self._rng = random.Random(seed)
        self._bag: list[str] = []
        self.family: set[int] = set()
        self.killed: list[str] = []

    def pids(self, target: str) -> list[int]:
        """The living processes of a kind, but for the children they made themselves."""
        assert self._product.process is not None
        found = []
        for child in psutil.Process(self._product.process.pid).children():
            try:
                if TARGETS[target] in " ".join(child.cmdline()):
                    found.append(child.pid)
            except psutil.NoSuchProcess:
                continue
        return found

    def note_family(self) -> None:
        assert self._product.process is not None
        self.family |= {
            child.pid for child in psutil.Process(self._product.process.pid).children(recursive=True)
        }

    def round(self, *, together: int, within_s: float) -> None:
        """Kill one process of so many kinds at nearly the same moment, and wait until all of it is back."""
        self.note_family()
        counts = {target: len(self.pids(target)) for target in TARGETS}
        for _ in range(together):
            if not self._bag:
                self._bag = self._rng.sample(sorted(TARGETS), len(TARGETS))
            target = self._bag.pop()
            for pid in self._rng.sample(found := self.pids(target), min(1, len(found))):
                os.kill(pid, signal.SIGKILL)
                self.killed.append(target)
            time.sleep(self._rng.uniform(0, 0.4))  # so that the second falls into the recovery of the first
        ended = len(self._callers.ended)
        deadline = time.monotonic() + within_s
        while len(self._callers.ended) < ended + 30 or any(
            len(self.pids(target)) != count for target, count in counts.items()
        ):
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.05)
        self.note_family()

    def story(self) -> str:
        """What happened, for whoever reads a failure."""
        callers = self._callers
        return (
            f"killed {self.killed}; {len(callers.ended)} calls ended, {callers.broken} broke,"
            f" refused {dict(callers.refused)}\n{self._product.errors}"
        )

    def survivors(self) -> list[str]:
        """Processes of the product that outlived it."""
        folder = str(self._product.folder)
        found = []
        for process in psutil.process_iter():
            try:
                line = " ".join(process.cmdline())
                is_ours = process.pid in self.family or folder in line
                if is_ours and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                    found.append(f"{process.pid} {line}")
            except psutil.NoSuchProcess:
                continue
        return found


@dataclass
class Auditor:
    """Reads the books beside the running product, past all of its own code but the names of the counters."""

    product: Product

    def __post_init__(self) -> None:
        found = json.loads((self.product.var_dir / "run" / "servers.json").read_text())
        self._database: str = found["database_url"]
        self._store: str = found["redis_url"]

    def _connect(self, within_s: float = 30.0) -> psycopg.Connection:
        """A connection, once a server that was killed a moment ago has come back."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                return psycopg.connect(self._database, options="-c role=relay_app")
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def records(self) -> list[tuple[str, str, int]]:
        """Id, status and amount of every call."""
        with self._connect() as connection:
            connection.execute("SELECT set_config('app.site', 'audit', true)")
            return connection.execute(
                "SELECT u.id::text, u.status, u.amount_nano FROM billing_usagerecord u"
                " JOIN accounts_organization o ON o.id = u.organization_id WHERE o.name = 'acme'"
            ).fetchall()

    def balance_nano(self) -> int:
        """The sum of the wallet's entries."""
        with self._connect() as connection:
            connection.execute("SELECT set_config('app.site', 'audit', true)")
            row = connection.execute(
                "SELECT sum(e.amount_nano)::bigint FROM billing_ledgerentry e JOIN accounts_organization o"
                " ON o.id = e.organization_id WHERE o.name = 'acme' AND e.account = 'wallet'"
            ).fetchone()
            return row[0] if row else 0

    def uses(self) -> list[tuple[int, int, int]]:
        """Spent, held and open of the organization and of its key."""
        with self._connect() as connection:
            connection.execute("SELECT set_config('app.site', 'audit', true)")
            row = connection.execute(
                "SELECT k.organization_id, k.id FROM accounts_key k JOIN accounts_organization o"
                " ON o.id = k.organization_id WHERE o.name = 'acme'"
            ).fetchone()
        assert row is not None
        self._organization_id, self._key_id = row
        with redis.Redis.from_url(self._store) as store:
            found = parse_use(store.hmget(use_key(row[0]), ["epoch", "o", f"k{row[1]}"]))
        return found or []

    def leave_hold(self) -> None:
        """A hold that nobody will settle, and whose lease runs out at once."""

        async def take() -> None:
            store = Store(self._store, scripts=PERMIT_SCRIPTS)
            await store.open()
            levels = (LevelLimits("o"), LevelLimits(f"k{self._key_id}"))
            request = PermitRequest(self._organization_id, "left-behind", 5, 0.001, levels)
            assert isinstance(await Permits(store).permit(request), Granted)
            await store.close()

        asyncio.run(take())

    def wait_swept(self, *, within_s: float) -> None:
        """Until the product's own sweeper has been there."""
        deadline = time.monotonic() + within_s
        while any(held or opened for _, held, opened in self.uses()):
            assert time.monotonic() < deadline, "the sweeper does not come any more"
            time.sleep(0.1)

    def sweep(self) -> None:
        """What the product's sweeper does when the leases of today have run out."""
        with redis.Redis.from_url(self._store) as store:
            seconds, _ = store.time()
            sweep_holds(store, [self._organization_id], now_ms=(seconds + LEASE_S) * 1000)

    def check(self, ended: list[str], *, within_s: float) -> Counter[str]:
        """No call lost, none charged twice, no hold left. Returns the records' statuses."""
        deadline = time.monotonic() + within_s
        has_swept = False
        while True:
            records = self.records()
            spent = sum(amount for _, _, amount in records)
            uses = self.uses()
            known = {call_id for call_id, _, _ in records}
            missing = set(ended) - known
            if not missing and uses == [(spent, 0, 0)] * 2:
                break
            if not has_swept and time.monotonic() > deadline - within_s / 2:
                has_swept = True
                self.sweep()
            assert time.monotonic() < deadline, f"missing {len(missing)}, spent {spent}, counters {uses}"
            time.sleep(0.1)
        assert len(known) == len(records), "a call is recorded twice"
        by_id = {call_id: status for call_id, status, _ in records}
        assert {by_id[call_id] for call_id in ended} <= {"ok"}
        assert self.balance_nano() == OPENING_NANO - spent
        return Counter(by_id.values())


def port_of(product: Product) -> int:
    port = urlsplit(product.url).port
    assert port is not None
    return port
