"""A TCP proxy that can go away and come back: what a test puts in front of a database or a store."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

__all__ = ["TcpProxy", "database_socket", "database_through", "running_proxy"]


class TcpProxy:
    """Passes bytes between its own port and `target`, a host and port or the path of a unix socket."""

    def __init__(self, target: tuple[str, int] | Path) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_away = False
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and every new one at once."""
        with self._lock:
            self._is_away = True
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Keep all connections, and let no byte through: a network that swallows."""
        self._flows.clear()

    def restore(self) -> None:
        """Let connections through again, and what was held back."""
        self._is_away = False
        self._flows.set()

    def close(self) -> None:
        self._flows.set()
        self.cut()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self._is_away:
                    near.close()
                    continue
                far = self._dial()
                with self._lock:
                    self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _dial(self) -> socket.socket:
        if isinstance(self._target, Path):
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self._target))
            return far
        return socket.create_connection(self._target)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._flows.wait()
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with self._lock:
            if {source, sink} <= self._open:
                self._open -= {source, sink}
                return
        source.close()
        sink.close()


@contextlib.contextmanager
def running_proxy(target: tuple[str, int] | Path) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()


def database_socket() -> Path:
    """The socket of the session's PostgreSQL."""
    host = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query)
    return Path(host["host"][0]) / f".s.PGSQL.{host['port'][0]}"


def database_through(proxy: TcpProxy) -> str:
    """The address of the database by way of a proxy to that socket."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    query = urlencode({"host": "127.0.0.1", "port": str(proxy.port)})
    return urlunsplit(parts._replace(query=query))
