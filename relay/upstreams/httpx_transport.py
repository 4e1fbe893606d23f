"""httpx over the same pool, for everything off the hot path: probes, balance readers, webhooks, evaluations.

One pool, one guard against private addresses, one TLS set-up, one test double, and httpx's interface:

    client = httpx.AsyncClient(transport=PoolTransport(pool))

httpx's own timeouts apply: `connect` as `connect_s`, `read` to the headers and to each wait for more. This
is the only module of the relay that imports httpx.

    UpstreamFault                                        becomes
    ├── connect_timeout                                  httpx.ConnectTimeout
    ├── resolve_failed, address_refused, connect_failed,
    │   tls_failed                                       httpx.ConnectError
    ├── proxy_failed                                     httpx.ProxyError
    ├── send_failed                                      httpx.WriteError
    ├── headers_timeout, first_token_timeout,
    │   idle_timeout, total_timeout                      httpx.ReadTimeout
    ├── cut, malformed, too_large                        httpx.RemoteProtocolError
    └── closed                                           httpx.ReadError
"""

import contextlib
import math
from collections.abc import AsyncIterator, Iterator

import httpx

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Exchange, Timeouts
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.head import build_head
from relay.upstreams.pool import Pool

__all__ = ["PoolTransport"]

_EXCEPTIONS: dict[FaultKind, type[httpx.TransportError]] = {
    FaultKind.CONNECT_TIMEOUT: httpx.ConnectTimeout,
    FaultKind.RESOLVE_FAILED: httpx.ConnectError,
    FaultKind.ADDRESS_REFUSED: httpx.ConnectError,
    FaultKind.CONNECT_FAILED: httpx.ConnectError,
    FaultKind.TLS_FAILED: httpx.ConnectError,
    FaultKind.PROXY_FAILED: httpx.ProxyError,
    FaultKind.SEND_FAILED: httpx.WriteError,
    FaultKind.HEADERS_TIMEOUT: httpx.ReadTimeout,
    FaultKind.FIRST_TOKEN_TIMEOUT: httpx.ReadTimeout,
    FaultKind.IDLE_TIMEOUT: httpx.ReadTimeout,
    FaultKind.TOTAL_TIMEOUT: httpx.ReadTimeout,
    FaultKind.CUT: httpx.RemoteProtocolError,
    FaultKind.MALFORMED: httpx.RemoteProtocolError,
    FaultKind.TOO_LARGE: httpx.RemoteProtocolError,
    FaultKind.CLOSED: httpx.ReadError,
}
# What httpx sets and the pool decides by itself.
_OWNED = frozenset({b"connection", b"content-length", b"transfer-encoding", b"keep-alive"})


class PoolTransport(httpx.AsyncBaseTransport):
    """Send httpx's requests through `pool`, which stays open when the client is closed.

    Every address is checked unless `allow_private`, redirects too, since httpx sends each of them here.
    `proxy` is an address as `Proxy.parse` takes it. `total_s` bounds a whole exchange, which httpx cannot
    say; `max_body_bytes` the bytes of an answer as they come over the network.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        allow_private: bool = False,
        proxy: str | None = None,
        total_s: float = 3600.0,
        max_body_bytes: int | None = None,
    ) -> None:
        self._pool = pool
        self._allow_private = allow_private
        self._proxy = proxy
        self._total_s = total_s
        self._max_body_bytes = max_body_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response when its headers have come. Raises httpx's exceptions, see the module."""
        with _translated(request):
            endpoint, head = self._describe(request)
            assert isinstance(request.stream, httpx.AsyncByteStream)
            body = [part async for part in request.stream]
            exchange = await self._pool.open(
                endpoint,
                head,
                body,
                timeouts=self._timeouts(request),
                decode=False,  # httpx does it
                max_body_bytes=self._max_body_bytes,
            )
        return httpx.Response(
            exchange.status,
            headers=exchange.headers,
            stream=_Body(exchange, request),
            extensions={"http_version": b"HTTP/1.1"},
        )

    def _describe(self, request: httpx.Request) -> tuple[Endpoint, bytes]:
        url = request.url
        host = f"[{url.host}]" if ":" in url.host else url.raw_host.decode()
        port = f":{url.port}" if url.port else ""
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in _OWNED]
        try:
            endpoint = Endpoint.parse(
                f"{url.scheme}://{host}{port}", allow_private=self._allow_private, proxy=self._proxy
            )
            return endpoint, build_head(request.method, endpoint, url.raw_path.decode(), headers)
        except ValueError as exc:
            raise httpx.UnsupportedProtocol(str(exc), request=request) from exc

    def _timeouts(self, request: httpx.Request) -> Timeouts:
        limits = request.extensions.get("timeout", {})
        connect_s, read_s = limits.get("connect"), limits.get("read")
        read_s = math.inf if read_s is None else read_s
        return Timeouts(
            connect_s=math.inf if connect_s is None else connect_s,
            first_token_s=read_s,
            idle_s=read_s,
            total_s=self._total_s,
        )


class _Body(httpx.AsyncByteStream):
    def __init__(self, exchange: Exchange, request: httpx.Request) -> None:
        self._exchange = exchange
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated(self._request):
            while data := await self._exchange.read():
                yield data

    async def aclose(self) -> None:
        self._exchange.close()


@contextlib.contextmanager
def _translated(request: httpx.Request) -> Iterator[None]:
    try:
        yield
    except UpstreamFault as fault:
        raise _EXCEPTIONS[fault.kind](str(fault), request=request) from fault
