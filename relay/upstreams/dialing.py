"""A new connection: look up and check, connect, go through the proxy, shake hands.

Not the hot path: a call that finds a warm connection does none of this. The four steps share one time
limit, `connect_s`. TCP is connected by ourselves, to an address that was checked, and only the finished
socket is given to the event loop.

Several addresses are raced by RFC 8305 ("happy eyeballs"): a host whose IPv6 does not work costs a quarter
of a second and not the whole limit.
"""

import asyncio
import ipaddress
import math
import socket
import ssl
from collections.abc import Callable

from relay.upstreams.address import Address, Resolver, is_local_name, is_public
from relay.upstreams.connection import Connection
from relay.upstreams.endpoint import Endpoint
from relay.upstreams.faults import FaultKind, UpstreamFault
from relay.upstreams.proxy import open_tunnel
from relay.upstreams.tls import Sessions

__all__ = ["dial"]

# RFC 8305, 5: the recommended delay before the next address is tried as well.
STAGGER_S = 0.25
# Chosen: a name with more addresses than this is not served better by trying them all.
MAX_ADDRESSES = 8
# A model may think for minutes without a byte. Probes of the kernel keep NAT tables warm meanwhile, and
# find out within two minutes that the other machine is gone. (Linux names; where one is missing the
# system's default applies.)
_KEEPALIVE = (("TCP_KEEPIDLE", 45), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 5))


async def dial(
    endpoint: Endpoint,
    resolver: Resolver,
    tls: ssl.SSLContext,
    sessions: Sessions,
    make: Callable[[], Connection],
    *,
    connect_s: float,
) -> Connection:
    """Return a connection to `endpoint`, ready for its first request.

    Raises UpstreamFault of the first group of the family. Whatever ends it, cancellation too, leaves no
    socket open.
    """
    try:
        async with asyncio.timeout(None if math.isinf(connect_s) else connect_s):
            sock = await _reach(endpoint, resolver)
            return await _hand_over(sock, endpoint, tls, sessions, make)
    except TimeoutError as exc:
        detail = f"no connection to {endpoint.host} within {connect_s:g} s"
        raise UpstreamFault(FaultKind.CONNECT_TIMEOUT, detail) from exc


async def _reach(endpoint: Endpoint, resolver: Resolver) -> socket.socket:
    """Return a socket that leads to the endpoint, past its proxy if it has one."""
    if endpoint.unix_path is not None:
        return await _connect_all([Address(socket.AF_UNIX, endpoint.unix_path, endpoint.unix_path)])
    proxy = endpoint.proxy
    if proxy is None:
        return await _connect_name(endpoint.host, endpoint.port, resolver, endpoint.allow_private)
    if not endpoint.allow_private:
        _check_behind_proxy(endpoint.host)
    try:
        # The proxy is an address that somebody entered, like any other, so it is checked like any other.
        sock = await _connect_name(proxy.host, proxy.port, resolver, endpoint.allow_private)
    except UpstreamFault as fault:
        if fault.kind is FaultKind.ADDRESS_REFUSED:
            raise
        raise UpstreamFault(FaultKind.PROXY_FAILED, f"the proxy cannot be reached: {fault.detail}") from fault
    try:
        await open_tunnel(sock, proxy, endpoint.host, endpoint.port)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_name(host: str, port: int, resolver: Resolver, allow_private: bool) -> socket.socket:
    found = await resolver.resolve(host, port, allow_private=allow_private)
    try:
        return await _connect_all(found)
    except UpstreamFault:
        resolver.forget(host, port)
        raise


def _check_behind_proxy(host: str) -> None:
    """Pure. Raise `address_refused` for what can be told to be private without asking the proxy's
    resolver."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        is_refused = is_local_name(host)
    else:
        is_refused = not is_public(host)
    if is_refused:
        raise UpstreamFault(FaultKind.ADDRESS_REFUSED, f"{host} is no public address (allow_private is off)")


async def _connect_all(addresses: list[Address]) -> socket.socket:
    """Return the first socket that connects. Raises `connect_failed` with the first address's reason."""
    if len(addresses) == 1:
        return await _connect_one(addresses[0])
    waiting = _interleaved(addresses)[:MAX_ADDRESSES]
    racing: set[asyncio.Task[socket.socket]] = set()
    first_fault: UpstreamFault | None = None
    try:
        while waiting or racing:
            if waiting:
                racing.add(asyncio.create_task(_connect_one(waiting.pop(0))))
            limit = STAGGER_S if waiting else None
            done, racing = await asyncio.wait(racing, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                fault = task.exception()
                if fault is None:
                    racing |= done - {task}  # another may have won in the same turn: it is closed below
                    return task.result()
                assert isinstance(fault, UpstreamFault)
                first_fault = first_fault or fault
    finally:
        await _end_race(racing)
    assert first_fault is not None
    raise first_fault


async def _end_race(racing: set[asyncio.Task[socket.socket]]) -> None:
    for task in racing:
        task.cancel()
    for result in await asyncio.gather(*racing, return_exceptions=True):
        if isinstance(result, socket.socket):
            result.close()


def _interleaved(addresses: list[Address]) -> list[Address]:
    """Pure. The addresses with their families taking turns, beginning with the preferred one (RFC 8305,
    4)."""
    first = [a for a in addresses if a.family == addresses[0].family]
    other = [a for a in addresses if a.family != addresses[0].family]
    turns = [pair for both in zip(first, other, strict=False) for pair in both]
    shorter = min(len(first), len(other))
    return turns + first[shorter:] + other[shorter:]


async def _connect_one(address: Address) -> socket.socket:
    try:
        sock = socket.socket(address.family, socket.SOCK_STREAM)
    except OSError as exc:
        raise UpstreamFault(FaultKind.CONNECT_FAILED, f"{address.ip}: {exc}") from exc
    try:
        sock.setblocking(False)
        if address.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
    except OSError as exc:
        sock.close()
        raise UpstreamFault(FaultKind.CONNECT_FAILED, f"{address.ip}: {exc.strerror or exc}") from exc
    except BaseException:
        sock.close()
        raise
    return sock


async def _hand_over(
    sock: socket.socket,
    endpoint: Endpoint,
    tls: ssl.SSLContext,
    sessions: Sessions,
    make: Callable[[], Connection],
) -> Connection:
    """Give a connected socket to the event loop, after the TLS handshake where there is one."""
    loop = asyncio.get_running_loop()
    connection = make()
    # From here on the socket is the loop's, which closes it when something fails.
    try:
        if endpoint.is_tls:
            # The certificate is checked against the name, not against the address that the socket leads to.
            with sessions.offer(endpoint):
                transport, _ = await loop.create_connection(
                    lambda: connection, sock=sock, ssl=tls, server_hostname=endpoint.host
                )
            sessions.watch(connection, endpoint, transport.get_extra_info("ssl_object"))
        else:
            await loop.create_connection(lambda: connection, sock=sock)
    except ssl.SSLCertVerificationError as exc:
        detail = f"the certificate of {endpoint.host} is not valid: {exc.verify_message}"
        raise UpstreamFault(FaultKind.TLS_FAILED, detail) from exc
    except OSError as exc:  # ssl.SSLError is one
        kind = FaultKind.TLS_FAILED if endpoint.is_tls else FaultKind.CONNECT_FAILED
        sessions.forget(endpoint)
        raise UpstreamFault(kind, f"{endpoint.host}: {exc}") from exc
    except BaseException:
        # Cancelled in the very turn in which the handshake ended: the loop would now take leave of the peer
        # in good order, which takes as long as the peer likes.
        connection.abort()
        raise
    return connection
