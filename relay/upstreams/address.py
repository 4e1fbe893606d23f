"""From a host to addresses that may be called.

Whoever can enter an upstream's URL could otherwise make this machine call its own metadata service,
database or neighbours. So a name is resolved once, **every** address it has is checked, and the connection
goes to the very address that was checked: a name that answers differently the second time (DNS rebinding)
gains nothing, because there is no second time. Upstreams marked `allow_private` skip the check.

`is_public` is pure and states the rule; `Resolver` adds the look-up and a short memory.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["Address", "Resolver", "is_local_name", "is_public"]

# Chosen: a provider that moves is followed within half a minute, and a burst of new connections asks once.
REMEMBER_S = 30.0
# Chosen: names come from the configuration, so this is never reached in earnest; it bounds what a mistake
# can cost.
REMEMBER_NAMES = 4096
# Look-ups block a thread each. They are rare (one per name and half minute); a dead resolver must not eat the
# threads that other work of the process uses, so they have a few of their own.
LOOKUP_THREADS = 4

# RFC 6890 and the registry it set up (IANA IPv4 Special-Purpose Address Registry): everything that is not
# globally reachable, multicast, and 168.63.129.16, the wire server inside every virtual network of Azure.
_REFUSED_4 = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata service is 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",
        "169.254.0.0/16",  # link-local; the metadata service of most clouds is 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# IANA allots global unicast from this block only. What it holds besides public networks:
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_6 = tuple(
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # Teredo, ORCHID, benchmarking
        "2001:db8::/32",
        "2002::/16",  # 6to4: carries any IPv4 address inside
        "3fff::/20",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

# RFC 6761, RFC 6762, RFC 8375, ICANN's .internal: names that mean something near whoever resolves them.
_LOCAL_NAMES = ("localhost", "local", "internal", "intranet", "lan", "home.arpa")


def is_public(ip: str) -> bool:
    """Pure. Whether `ip` is an address of the public internet. Anything unreadable is not.

    An IPv4 address inside an IPv6 one (mapped, or behind the well-known NAT64 prefix) is judged by itself.

    >>> [is_public(ip) for ip in ("1.1.1.1", "127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::808:808")]
    [True, False, False, True]
    """
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        else:
            return address in _GLOBAL_6 and not any(address in block for block in _REFUSED_6)
    return not any(address in block for block in _REFUSED_4)


def is_local_name(host: str) -> bool:
    """Pure. Whether `host` is a name that only means something locally: for proxies, which resolve by
    themselves.

    >>> [is_local_name(h) for h in ("localhost", "metadata.google.internal", "intranet", "api.openai.com")]
    [True, True, True, False]
    """
    return "." not in host or any(host.endswith("." + name) for name in _LOCAL_NAMES)


@dataclass(frozen=True, slots=True)
class Address:
    """One address that may be connected to: what `socket.socket()` and `connect()` take."""

    family: socket.AddressFamily
    ip: str
    sockaddr: tuple[str | int | bytes, ...] | str


Lookup = Callable[[str, int], list[Address]]


def look_up(host: str, port: int) -> list[Address]:
    """Ask the system (it blocks). Raises OSError when the name has no address."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    seen: dict[str, Address] = {}
    for family, _, _, _, sockaddr in found:
        ip = str(sockaddr[0])
        if family in (socket.AF_INET, socket.AF_INET6) and ip not in seen:
            seen[ip] = Address(family, ip, sockaddr)
    return list(seen.values())


def _written_address(host: str, port: int) -> Address | None:
    """Pure. The address that `host` already is, which needs no look-up, or None for a name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    if version == 4:
        return Address(socket.AF_INET, host, (host, port))
    return Address(socket.AF_INET6, host, (host, port, 0, 0))


class Resolver:
    """Look-ups off the event loop, shared by everyone who waits for the same name, remembered for a short
    while.

    `lookup` is the seam for tests; it runs in a thread.
    """

    def __init__(self, lookup: Lookup = look_up, *, remember_s: float = REMEMBER_S) -> None:
        self._lookup = lookup
        self._remember_s = remember_s
        self._known: dict[tuple[str, int], tuple[float, list[Address]]] = {}
        self._asked: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="resolve")

    async def resolve(self, host: str, port: int, *, allow_private: bool) -> list[Address]:
        """Return every address of `host`, in the system's order of preference, all of them checked.

        Raises UpstreamFault: `resolve_failed`, or `address_refused` if a single one is not public.
        """
        try:
            addresses = await self._addresses(host, port)
        except (OSError, UnicodeError) as exc:
            raise UpstreamFault(FaultKind.RESOLVE_FAILED, f"{host}: {exc}") from exc
        if not addresses:
            raise UpstreamFault(FaultKind.RESOLVE_FAILED, f"{host} has no address")
        if not allow_private:
            for address in addresses:
                if not is_public(address.ip):
                    detail = f"{host} is {address.ip}, which is no public address (allow_private is off)"
                    raise UpstreamFault(FaultKind.ADDRESS_REFUSED, detail)
        return addresses

    def forget(self, host: str, port: int) -> None:
        """Ask again the next time: none of the remembered addresses could be reached."""
        self._known.pop((host, port), None)

    async def _addresses(self, host: str, port: int) -> list[Address]:
        written = _written_address(host, port)
        if written is not None:
            return [written]
        name = (host, port)
        known = self._known.get(name)
        if known is not None and time.perf_counter() < known[0]:
            return known[1]
        asked = self._asked.get(name)
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = loop.run_in_executor(self._threads, self._lookup, host, port)
            self._asked[name] = asked
            asked.add_done_callback(lambda done: self._remember(name, done))
        # One waiter that is cancelled must not take the answer from the others.
        return await asyncio.shield(asked)

    def _remember(self, name: tuple[str, int], asked: asyncio.Future[list[Address]]) -> None:
        self._asked.pop(name, None)
        if asked.cancelled() or asked.exception() is not None:
            return
        if len(self._known) >= REMEMBER_NAMES:
            self._known.clear()
        self._known[name] = (time.perf_counter() + self._remember_s, asked.result())

    def close(self) -> None:
        """Let the threads end, without waiting; whoever waits for a look-up under way still gets it."""
        self._threads.shutdown(wait=False)
