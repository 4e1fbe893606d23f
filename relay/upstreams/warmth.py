"""Connections that lie ready before a call needs them: for each routed upstream, all the time.

The first call to an upstream after a pause would otherwise pay for look-up, TCP and TLS: two or three round trips, half
a second to a provider on another continent. One connection for each way is enough: when a call takes it, the next one
is opened within a second, and what a burst leaves behind lies ready anyway. A connection that will soon have lain too
long is replaced before it goes.

Nothing of this is on the path of a call, and nothing fails when it does not work: a place that cannot be reached, or
that closes what nobody uses, is tried again in ever longer pauses.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.faults import UpstreamFault
from relay.upstreams.pool import Pool

__all__ = ["Warmth"]

TICK_S = 1.0
# A connection is replaced this long before it has lain too long. Chosen: a few ticks and a slow handshake.
AHEAD_S = 4.0
# The longest pause between two tries at a place that does not answer, or does not like to be kept waiting.
LONGEST_PAUSE_S = 60.0


@dataclass(slots=True)
class _Place:
    next_at: float = 0.0
    pause_s: float = 0.0
    dropped: int = 0
    opening: asyncio.Task[None] | None = None


class Warmth:
    """Keeps `count` connections ready for each of the endpoints that `wanted` names at that moment."""

    def __init__(
        self, pool: Pool, wanted: Callable[[], Iterable[Endpoint]], *, count: int = 1, tick_s: float = TICK_S
    ) -> None:
        self._pool = pool
        self._wanted = wanted
        self._count = count
        self._tick_s = tick_s
        self._places: dict[str, _Place] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="warmth")

    async def close(self) -> None:
        """Stop opening. What lies ready is the pool's."""
        tasks = [place.opening for place in self._places.values()] + [self._task]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        for task in running:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(self._tick_s)

    def _look(self) -> None:
        wanted = {endpoint.key: endpoint for endpoint in self._wanted()}
        for key in self._places.keys() - wanted.keys():
            if self._places[key].opening is None:
                del self._places[key]
        now = perf_counter()
        for key, endpoint in wanted.items():
            place = self._places.setdefault(key, _Place(dropped=self._pool.dropped(endpoint)))
            if place.opening is not None or now < place.next_at:
                continue
            if self._pool.idle_for(endpoint, AHEAD_S) < self._count:
                place.opening = asyncio.create_task(self._open(endpoint, place))

    async def _open(self, endpoint: Endpoint, place: _Place) -> None:
        dropped = self._pool.dropped(endpoint)
        is_unwelcome = dropped > place.dropped
        place.dropped = dropped
        try:
            await self._pool.warm(endpoint, self._count, for_s=AHEAD_S)
        except UpstreamFault:  # the call that needs it will say so
            is_unwelcome = True
        finally:
            longer_s = max(2 * place.pause_s, self._tick_s)
            place.pause_s = min(longer_s, LONGEST_PAUSE_S) if is_unwelcome else 0.0
            place.next_at = perf_counter() + place.pause_s
            place.opening = None
