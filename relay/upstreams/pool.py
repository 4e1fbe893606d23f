"""The connections to all upstreams of one process, kept warm between calls.

Per endpoint (`Endpoint.key`) a stack: the connection used last is used next, so that those too many grow
old and are closed. There is no limit on how many calls run at once (limits are a matter of the upstream's
own counters), only on how many connections lie idle.

The one retry there is: a reused connection that the peer had closed while it was idle, found out by writing
to it, is replaced by a fresh one, once. After a single byte of an answer nothing is ever sent again from
here; other upstreams are the failover's business.

    pool = Pool()
    exchange = await pool.open(endpoint, head, [body], timeouts=Timeouts())
    try:
        while data := await exchange.read():
            ...
    finally:
        exchange.close()
    await pool.close()

A pool belongs to the event loop that it is first used in.
"""

import asyncio
import contextlib
import ssl
from time import perf_counter

from relay.upstreams.address import Resolver
from relay.upstreams.connection import Connection
from relay.upstreams.dialing import dial
from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Body, Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import finish_head
from relay.upstreams.tls import Sessions, client_tls

__all__ = ["Pool"]

# Chosen: below the 60 s after which common load balancers (AWS's, by default) close an idle connection, so
# that it is us who close and no call meets a connection that is being closed.
IDLE_S = 50.0
# Chosen: what a burst of 500 streams leaves behind is kept for the next one.
MAX_IDLE = 512
# A connection that is always in use would keep its address for ever, however often the name has moved. Chosen: five
# minutes are what providers announce before they take an address out of service.
MAX_AGE_S = 300.0
SWEEP_S = 5.0
# How long `close` waits for the event loop to report the last connection closed. Aborting takes one turn of
# the loop.
CLOSE_S = 2.0


class Pool:
    """See the module. `ssl_context` and `resolver` are for tests and for sites with their own authorities."""

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
        idle_s: float = IDLE_S,
        max_idle: int = MAX_IDLE,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self._tls = ssl_context or client_tls()  # now, because it reads files
        self._sessions = Sessions()
        self._resolver = resolver or Resolver()
        self._idle_s = idle_s
        self._max_idle = max_idle
        self._max_age_s = max_age_s
        self._open: set[Connection] = set()
        self._idle: dict[str, dict[Connection, None]] = {}
        self._dropped: dict[str, int] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._all_lost: asyncio.Event | None = None

    @property
    def open_connections(self) -> int:
        """How many connections exist, idle ones too, until the event loop has closed them."""
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        """How many connections lie ready."""
        return sum(len(stack) for stack in self._idle.values())

    async def open(
        self,
        endpoint: Endpoint,
        head: bytes,
        body: Body = (),
        *,
        timeouts: Timeouts,
        decode: bool = True,
        max_body_bytes: int | None = None,
    ) -> Exchange:
        """Send a request and return its exchange when the answer's headers have come, whatever their status.

        `head` is from `build_head`; `content-length` is added here. `body` must stay unchanged until the
        answer has begun. With `decode` gzip and deflate are undone and other codings are `malformed`;
        without it the bytes come as they are. `max_body_bytes` bounds the (decoded) body: `too_large`.

        Raises UpstreamFault. Cancelling it leaves nothing open.
        """
        started = perf_counter()
        body_bytes = 0
        for segment in body:
            body_bytes += segment.nbytes if isinstance(segment, memoryview) else len(segment)
        head = finish_head(head, body_bytes)
        connection = self._take(endpoint.key, started)
        while True:
            reused = connection is not None
            if connection is None:
                connection = await self._connect(endpoint, min(timeouts.connect_s, timeouts.total_s))
            exchange = Exchange(
                timeouts,
                started=started,
                reused=reused,
                is_head=head.startswith(b"HEAD "),
                decodes=decode,
                max_body_bytes=max_body_bytes,
            )
            try:
                connection.begin(exchange, head, body, body_bytes)
                while not exchange.status and exchange.fault is None:
                    await exchange.wait()
            except BaseException:
                exchange.close()
                raise
            if exchange.status:
                return exchange
            if not exchange.is_stale:
                assert exchange.fault is not None
                raise exchange.fault
            connection = None  # a fresh one now, which is never stale: this loop turns twice at most

    async def warm(
        self, endpoint: Endpoint, count: int, *, connect_s: float = 5.0, for_s: float = 0.0
    ) -> int:
        """Open connections until `count` lie idle for `endpoint`, all at once; return how many lie there now.

        Only those count that may go on lying for `for_s`. Raises the first UpstreamFault if any could not be
        opened; those that could stay.
        """

        async def add() -> None:
            self._keep(await self._connect(endpoint, connect_s))

        missing = count - self.idle_for(endpoint, for_s)
        for result in await asyncio.gather(*(add() for _ in range(missing)), return_exceptions=True):
            if result is not None:
                raise result
        return self.idle_for(endpoint, for_s)

    def idle_for(self, endpoint: Endpoint, for_s: float = 0.0) -> int:
        """How many connections lie idle for `endpoint` and may go on doing so for `for_s`."""
        then = perf_counter() + for_s
        stack = self._idle.get(endpoint.key, ())
        return sum(1 for c in stack if c.is_usable and then - c.idle_since < c.idle_s)

    def dropped(self, endpoint: Endpoint) -> int:
        """How many idle connections the other side has closed so far."""
        return self._dropped.get(endpoint.key, 0)

    async def close(self) -> None:
        """Abort everything and wait until it is gone. Running exchanges fail as `closed`. Idempotent."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._idle.clear()
        self._resolver.close()
        self._all_lost = asyncio.Event()
        for connection in list(self._open):
            connection.fail(FaultKind.CLOSED, "the pool is closing")
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._all_lost.wait()

    # What connections call.

    def released(self, connection: Connection) -> None:
        """`connection` has had an answer and can be used again."""
        self._sessions.learn(connection)
        self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        now = perf_counter()
        if self._is_closed or not connection.is_usable or now - connection.born > self._max_age_s:
            connection.abort()
            return
        connection.idle_since = now
        stack = self._idle.get(connection.key)
        if stack is None:
            stack = self._idle[connection.key] = {}
        stack[connection] = None
        if len(stack) > self._max_idle:
            oldest = next(iter(stack))
            del stack[oldest]
            oldest.abort()
        if self._sweeper is None:
            self._sweeper = connection.loop.call_later(SWEEP_S, self._sweep, connection.loop)

    def lost(self, connection: Connection) -> None:
        """`connection` is closed."""
        self._open.discard(connection)
        self._sessions.learn(connection)
        stack = self._idle.get(connection.key)
        if stack is not None and connection in stack:
            del stack[connection]
            self._dropped[connection.key] = self._dropped.get(connection.key, 0) + 1
        if self._all_lost is not None and not self._open:
            self._all_lost.set()

    def _take(self, key: str, now: float) -> Connection | None:
        """Return the youngest idle connection that may still be used."""
        stack = self._idle.get(key)
        while stack:
            connection, _ = stack.popitem()
            if now - connection.idle_since < connection.idle_s and connection.is_usable:
                return connection
            connection.abort()
        return None

    async def _connect(self, endpoint: Endpoint, connect_s: float) -> Connection:
        if self._is_closed:
            raise UpstreamFault(FaultKind.CLOSED, "the pool is closed")
        loop = asyncio.get_running_loop()

        def make() -> Connection:
            return Connection(self, endpoint.key, loop, self._idle_s)

        connection = await dial(
            endpoint, self._resolver, self._tls, self._sessions, make, connect_s=connect_s
        )
        if not connection.is_usable:
            connection.abort()
            raise UpstreamFault(FaultKind.CONNECT_FAILED, f"{endpoint.host} closed the connection at once")
        if self._is_closed:
            connection.abort()
            raise UpstreamFault(FaultKind.CLOSED, "the pool is closing")
        self._open.add(connection)
        return connection

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what has lain idle too long. One timer for all, and only while something is idle."""
        now = perf_counter()
        for key, stack in list(self._idle.items()):
            for connection in [c for c in stack if now - c.idle_since >= c.idle_s or not c.is_usable]:
                del stack[connection]
                connection.abort()
            if not stack:
                del self._idle[key]
        self._sweeper = loop.call_later(SWEEP_S, self._sweep, loop) if self._idle else None
