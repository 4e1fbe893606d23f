"""TLS towards upstreams: one context for the process, and the sessions that save a second full handshake.

A new connection to a place where we were before offers the session of the last one. Where the server takes it, neither
side sends, reads or checks certificates again, and TLS 1.2 saves a round trip (RFC 8446, 2.2; RFC 5246, 7.3). A server
that does not take it makes a full handshake as if nothing had been offered.

The event loops make TLS objects by `SSLContext.wrap_bio` and know no sessions, but they call it in the context of
whoever connects. So `Sessions.offer` sets a context variable, and `ClientTls.wrap_bio` reads it.
"""

import contextlib
import functools
import ssl
import sys
import time
from collections.abc import Hashable, Iterator
from contextvars import ContextVar
from pathlib import Path

import certifi

from relay.upstreams.endpoint import Endpoint

__all__ = ["ClientTls", "Sessions", "client_tls"]

# Chosen: a certificate that was withdrawn is looked at again after this long, whatever the server allows.
SESSION_S = 3600.0
# Chosen: places come from the configuration, so this is never reached in earnest.
MAX_SESSIONS = 4096


_offered: ContextVar[ssl.SSLSession | None] = ContextVar("_offered", default=None)


class ClientTls(ssl.SSLContext):
    """Verified as `ssl.create_default_context` does it, without its key log file; HTTP/1.1 only."""

    def __new__(cls, cadata: str | None = None) -> "ClientTls":
        """Trust `cadata` (PEM), or else nobody yet."""
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["http/1.1"])
        if sys.version_info >= (3, 13):
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
        if cadata is not None:
            context.load_verify_locations(cadata=cadata)
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session or _offered.get())


@functools.cache
def client_tls() -> ClientTls:
    """Return the process's TLS settings for upstreams, made once.

    Trusts what the system trusts; where the system has no certificates (slim images), Mozilla's from certifi.
    """
    context = ClientTls()
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    paths = ssl.get_default_verify_paths()
    has_file = paths.cafile is not None
    has_folder = paths.capath is not None and any(Path(paths.capath).iterdir())
    if not has_file and not has_folder:
        context.load_verify_locations(certifi.where())
    return context


class Sessions:
    """The newest session of each place, by `Endpoint.key`: what leads there another way gets none of it."""

    def __init__(self) -> None:
        self._sessions: dict[str, ssl.SSLSession] = {}
        self._fresh: dict[Hashable, tuple[str, ssl.SSLObject]] = {}

    @contextlib.contextmanager
    def offer(self, endpoint: Endpoint) -> Iterator[None]:
        """Offer the session of `endpoint`, if there is one, in the handshake that is made meanwhile."""
        session = self._sessions.get(endpoint.key)
        if session is not None and time.time() - session.time > min(session.timeout, SESSION_S):
            del self._sessions[endpoint.key]
            session = None
        token = _offered.set(session)
        try:
            yield
        finally:
            _offered.reset(token)

    def watch(self, connection: Hashable, endpoint: Endpoint, tls: ssl.SSLObject) -> None:
        """A new connection: servers give their tickets behind the handshake (TLS 1.3), so `learn` comes later."""
        self._fresh[connection] = (endpoint.key, tls)

    def learn(self, connection: Hashable) -> None:
        """The first answer on this connection is there, or its end: keep what the server has given by now."""
        found = self._fresh.pop(connection, None)
        if found is None:
            return
        key, tls = found
        session = tls.session
        if session is None or not (session.has_ticket or session.id):
            return
        if len(self._sessions) >= MAX_SESSIONS:
            self._sessions.clear()
        self._sessions[key] = session

    def forget(self, endpoint: Endpoint) -> None:
        """A handshake failed: offer nothing the next time, in case it was what we offered."""
        self._sessions.pop(endpoint.key, None)
