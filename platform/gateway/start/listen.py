"""The one listening socket, bound by the supervisor before anything else is started.

Relay processes inherit it. While one of them is restarted, the socket stays open here and new connections
wait in its queue instead of being refused.
"""

import errno
import socket
import time

from gateway.env_values import EnvError

__all__ = ["host_header", "listen", "local_address", "url_host"]

# Waiting connections, should all relays be busy or restarting; Linux bounds it by net.core.somaxconn.
_BACKLOG = 2048
_RETRY_S = 0.1
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def listen(host: str, port: int, *, wait_s: float = 0.0) -> socket.socket:
    """A listening socket, or EnvError with one line that says what is wrong with HOST or PORT.

    ``wait_s`` is for the start after a kill: relay processes of the killed supervisor hold the port for a
    moment longer.
    """
    give_up_at = time.monotonic() + wait_s
    while True:
        try:
            return _listen(host, port)
        except socket.gaierror as exc:
            raise EnvError(f"HOST {host} is no address of this machine: {exc.strerror}") from exc
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE and time.monotonic() < give_up_at:
                time.sleep(_RETRY_S)
                continue
            raise EnvError(_explain(exc, host, port)) from exc


def local_address(listener: socket.socket) -> tuple[str, int]:
    """Where this machine itself reaches the socket: a wildcard address is answered by the loopback one."""
    host, port = listener.getsockname()[:2]
    return _LOOPBACK.get(host, host), port


def host_header(host: str, port: int) -> str:
    """Pure. What a client on this machine would send as Host.

    >>> host_header("0.0.0.0", 8000), host_header("relay.local", 80)
    ('127.0.0.1:8000', 'relay.local:80')
    """
    return f"{url_host(_LOOPBACK.get(host, host))}:{port}"


def url_host(host: str) -> str:
    """Pure. A host as it stands in a URL.

    >>> url_host("::1"), url_host("example.com")
    ('[::1]', 'example.com')
    """
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        # At once: two sockets may be bound to one port, only the second `listen` would fail.
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _explain(exc: OSError, host: str, port: int) -> str:
    if exc.errno == errno.EADDRINUSE:
        return f"PORT {port} is in use on {host}: stop what listens there, or set another PORT"
    if exc.errno == errno.EACCES:
        return f"PORT {port} may not be used by this user: set PORT to 1024 or more"
    if exc.errno == errno.EADDRNOTAVAIL:
        return f"HOST {host} is no address of this machine"
    return f"HOST {host} and PORT {port} cannot be used: {exc.strerror}"
