"""Through a proxy: HTTP CONNECT (RFC 9110, 9.3.6) and SOCKS5 (RFC 1928, with user and password by RFC 1929).

Both are a short conversation on a fresh socket, after which the socket leads to the upstream and everything
else (TLS, HTTP) happens as if it had been connected there. HTTP proxies are asked for a tunnel for http://
upstreams too.

The proxy resolves the upstream's name, so its addresses cannot be checked here; addresses written in the
URL and names that only mean something locally are, by the dialer.

Everything raised here is `proxy_failed`, and no message holds the credential.
"""

import asyncio
import base64
import ipaddress
import socket

from relay.upstreams.endpoint import Proxy
from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["open_tunnel"]

# Chosen: a proxy's answer to CONNECT is a few hundred bytes.
MAX_REPLY_BYTES = 16_384

# RFC 1928, 6.
_SOCKS_REPLIES = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Make `sock`, connected to `proxy`, lead to `host`:`port`. Raises `proxy_failed`. The caller bounds
    the time."""
    try:
        if proxy.scheme == "http":
            await _connect_http(sock, proxy, host, port)
        else:
            await _connect_socks(sock, proxy, host, port)
    except OSError as exc:
        raise _failed(f"the connection to the proxy broke: {exc}") from exc


async def _connect_http(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
    if proxy.user or proxy.password:
        token = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"proxy-authorization: Basic {token}")
    await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode())
    reply = bytearray()
    while b"\r\n\r\n" not in reply:
        data = await loop.sock_recv(sock, 4096)
        if not data:
            raise _failed("the proxy closed the connection instead of answering")
        reply += data
        if len(reply) > MAX_REPLY_BYTES:
            raise _failed("the proxy's answer is too long")
    head, _, rest = bytes(reply).partition(b"\r\n\r\n")
    version, _, status = head.split(b"\r\n", 1)[0].partition(b" ")
    code = status[:3]
    if not version.startswith(b"HTTP/1.") or len(code) != 3 or not code.isdigit():
        raise _failed("the proxy does not speak HTTP")
    if code == b"407":
        raise _failed("the proxy wants other credentials (407)")
    if not code.startswith(b"2"):
        raise _failed(f"the proxy refused the tunnel with status {code.decode()}")
    if rest:
        # In both protocols that go through the tunnel it is we who speak first.
        raise _failed("the proxy sent bytes into the tunnel before we did")


async def _connect_socks(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    has_credential = bool(proxy.user or proxy.password)
    await loop.sock_sendall(sock, b"\x05\x02\x00\x02" if has_credential else b"\x05\x01\x00")
    version, method = await _receive(sock, 2)
    if version != 5:
        raise _failed("the proxy does not speak SOCKS5")
    if method == 2 and has_credential:
        user, password = proxy.user.encode(), proxy.password.encode()
        await loop.sock_sendall(sock, b"\x01%c%b%c%b" % (len(user), user, len(password), password))
        _, verdict = await _receive(sock, 2)
        if verdict:
            raise _failed("the proxy does not accept the credentials")
    elif method != 0:
        raise _failed("the proxy wants other credentials")
    await loop.sock_sendall(sock, b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _receive(sock, 4)
    if version != 5:
        raise _failed("the proxy does not speak SOCKS5")
    if reply:
        raise _failed(f"the proxy refused: {_SOCKS_REPLIES.get(reply, f'code {reply}')}")
    match kind:  # the address the proxy calls from: read it off the wire, nobody needs it
        case 1:
            await _receive(sock, 4 + 2)
        case 4:
            await _receive(sock, 16 + 2)
        case 3:
            (length,) = await _receive(sock, 1)
            await _receive(sock, length + 2)
        case _:
            raise _failed("the proxy does not speak SOCKS5")


def _socks_address(host: str) -> bytes:
    """Pure. The upstream as SOCKS5 writes it: an address as such, a name for the proxy to resolve (RFC
    1928, 5).

    >>> _socks_address("127.0.0.1"), _socks_address("a.example")
    (b'\\x01\\x7f\\x00\\x00\\x01', b'\\x03\\ta.example')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode()
        return b"\x03%c%b" % (len(name), name)
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


async def _receive(sock: socket.socket, count: int) -> bytes:
    """Return exactly `count` bytes and leave everything behind them on the socket."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        more = await loop.sock_recv(sock, count - len(data))
        if not more:
            raise _failed("the proxy closed the connection instead of answering")
        data += more
    return data


def _failed(detail: str) -> UpstreamFault:
    return UpstreamFault(FaultKind.PROXY_FAILED, detail)
