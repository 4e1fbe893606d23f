"""Everything one relay process keeps while it lives: made once, started in its event loop, closed in order.

Settings come in as plain values: this room reads no environment and sets up no Django.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from relay.admission.address import store_name
from relay.admission.holds import LEASE_S, Holds
from relay.admission.permit import PERMIT_SCRIPTS, Permits
from relay.admission.rebuild import Rebuild
from relay.admission.store import Store
from relay.call import Call
from relay.metering.estimate import Estimator
from relay.metering.finish import Books
from relay.metering.journal import LIMIT_BYTES, Journal
from relay.metering.shipper import Shipper
from relay.metering.takeover import take_over
from relay.state.loader import DatabaseAway, SnapshotLoader
from relay.state.registry import Registry
from relay.state.snapshot import Snapshot
from relay.stations import BEAT_S, Stations
from relay.upstreams.attempt import Upstreams
from relay.upstreams.endpoint import Endpoint
from relay.upstreams.hop import Hops
from relay.upstreams.pool import Pool
from relay.upstreams.tls import client_tls
from relay.upstreams.warmth import Warmth

__all__ = ["RelayConfig", "RelayRuntime"]

log = logging.getLogger(__name__)

TAKEOVER_S = 2.0
# A call waits this long for the limit store at most, then it is refused. Chosen: above any pause of a busy machine.
STORE_S = 1.0
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """`app` and `ingest` are psycopg's connection arguments under these roles; `beat_s`: see `Stations`.

    Past `journal_bytes` of records that the database has not taken, calls are refused.
    """

    app: dict[str, str]
    ingest: dict[str, str]
    limits_url: str
    journal_dir: Path
    peppers: Sequence[bytes]
    field_keys: Sequence[bytes]
    beat_s: float = BEAT_S
    journal_bytes: float = LIMIT_BYTES


class RoutedPlaces:
    """The endpoints that calls may be sent to: of upstreams that are on, behind a route of a model on offer."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._version = -1
        self._places: list[Endpoint] = []

    def __call__(self) -> list[Endpoint]:
        if self._version != self._snapshot.version:
            self._version = self._snapshot.version
            self._places = list(self._read())
        return self._places

    def _read(self) -> Iterator[Endpoint]:
        routed = {route.upstream_id for model in self._snapshot.models() for route in model.routes}
        for number in routed:
            upstream = self._snapshot.upstreams.get(number)
            if upstream is None or not upstream.enabled:
                continue
            try:
                yield Endpoint.parse(
                    upstream.base_url, allow_private=upstream.allow_private, proxy=upstream.proxy
                )
            except ValueError:  # a call that needs it will say so
                continue


class RelayRuntime:
    """The stations of one process and the tasks behind them."""

    stations: Stations

    def __init__(self, config: RelayConfig) -> None:
        self._config = config
        self._starting: asyncio.Lock | None = None
        self._takeover: asyncio.Task[None] | None = None
        self._taking_over = asyncio.Lock()
        self.is_started = False
        self.calls: dict[str, tuple[Call, asyncio.Task[None]]] = {}

    async def start(self) -> None:
        """Start once, in the running loop. Does not wait for database or store."""
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if self.is_started:
                return
            config = self._config
            self.journal = Journal(config.journal_dir, limit_bytes=int(config.journal_bytes))
            self.shipper = Shipper(self.journal, config.ingest, config.journal_dir)
            self.loader = SnapshotLoader(config.app, field_keys=config.field_keys)
            self.store = Store(config.limits_url, scripts=PERMIT_SCRIPTS, timeout_s=STORE_S)
            self.registry = Registry(config.app, store_name(config.limits_url))
            permits = Permits(self.store, before_send=self.journal.flush)
            self.holds = Holds(permits, Rebuild(self.store, permits, _Records(self), lease_s=LEASE_S))
            await asyncio.to_thread(client_tls)  # reads the system's certificates: not in the event loop
            self.pool = Pool()
            self.warmth = Warmth(self.pool, RoutedPlaces(self.loader.snapshot))
            estimator = Estimator()
            hops = Hops(config.peppers)
            self.stations = Stations(
                loader=self.loader,
                holds=self.holds,
                upstreams=Upstreams(self.pool, hops),
                hops=hops,
                journal=self.journal,
                books=Books(self.journal, self.holds.settle, estimator),
                estimator=estimator,
                peppers=config.peppers,
                draw=random.Random(),
                beat_s=config.beat_s,
            )
            await self.store.open()
            self.loader.start()
            self.registry.start()
            self.shipper.start()
            self.holds.start()
            self.warmth.start()
            self._takeover = asyncio.create_task(self._take_over(), name="takeover")
            self.is_started = True

    @property
    def journal_dir(self) -> Path:
        """Where the journals of all processes of this machine lie."""
        return self._config.journal_dir

    async def drain(self, within_s: float) -> None:
        """Let running calls end by themselves for this long, then end them with the dialect's error event."""
        deadline = asyncio.get_running_loop().time() + within_s
        while self.calls and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait([task for _, task in self.calls.values()], timeout=min(left, 0.5))
        for _, task in list(self.calls.values()):
            task.cancel()
        if self.calls:
            await asyncio.wait([task for _, task in self.calls.values()], timeout=CLOSE_S)

    async def close(self) -> None:
        """Close in order: calls, holds, records, then what they stood on."""
        if not self.is_started:
            return
        self.is_started = False
        await self.drain(0)
        if self._takeover is not None:
            self._takeover.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._takeover
        await self.holds.close(CLOSE_S)
        await self.shipper.close(CLOSE_S)
        await self.registry.close()
        await self.loader.close()
        await self.warmth.close()
        await self.pool.close()
        await self.store.close()
        self.journal.close_files()

    async def take_over(self) -> None:
        """Close the books of killed processes, and return when that is done, also where it was under way.

        Raises what stands for an absent database (`Shipper.ship_records`).
        """
        async with self._taking_over:
            await take_over(self._config.journal_dir, self.shipper.ship_records, self.holds.settle)

    async def _take_over(self) -> None:
        """Look for journals of dead processes, at the start and ever after."""
        while True:
            try:
                await self.take_over()
            except (psycopg.Error, OSError, TimeoutError) as exc:
                log.warning("journals of dead processes wait: %s", type(exc).__name__)
            await asyncio.sleep(TAKEOVER_S)


class _Records:
    """What lost counters are rebuilt from (`relay.admission.rebuild.Records`)."""

    def __init__(self, runtime: RelayRuntime) -> None:
        self._runtime = runtime
        self.number = runtime.registry.number
        self.peers = runtime.registry.peers
        self.totals = runtime.registry.totals

    async def flush(self) -> None:
        """Ship what waits now, and what killed processes left behind. Raises DatabaseAway."""
        runtime = self._runtime
        try:
            left = runtime.journal.queued
            while left > 0 and runtime.journal.queued:
                left -= await runtime.shipper.ship_once()
            await runtime.take_over()
        except (psycopg.Error, OSError, TimeoutError) as exc:
            raise DatabaseAway from exc

    def is_flushed(self) -> bool:
        """Whether nothing waits."""
        return not self._runtime.journal.queued
