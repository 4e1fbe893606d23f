"""The embedded Valkey: on 127.0.0.1 at a free port, with a random password, its data in an append-only file.

    VAR_DIR/valkey/password       mode 0600
    VAR_DIR/valkey/data/          append-only file, and the configuration with the password, mode 0600

TCP and not a unix socket, because one form of URL then serves the limit store, the channel layer and Celery
(which wants another scheme for sockets). The port is chosen anew at every start and stays for its length: a
restarted server is found by children that know the old URL.
"""

import os
import secrets
import signal
import socket
from pathlib import Path

from gateway.embedded.binaries import LaunchError, find_valkey
from gateway.embedded.home import Home
from gateway.embedded.leftover import end_leftover
from gateway.embedded.ports import free_port
from gateway.embedded.temporary import Temporaries
from gateway.secret_store import write_private
from gateway.supervisor import ChildSpec, Lifeline

__all__ = ["Valkey"]

_USERS = ("valkey", "redis", "nobody")
_HOST = "127.0.0.1"
_STOP_S = 30.0
_PING_S = 1.0
_MIN_MEMORY_BYTES = 256 * 1024 * 1024
_MAX_MEMORY_BYTES = 4 * 1024 * 1024 * 1024


class Valkey:
    """One embedded server. `prepare`, then run `spec`."""

    def __init__(self, var_dir: Path, temporaries: Temporaries) -> None:
        self._home = Home(var_dir / "valkey", _USERS, temporaries)
        self._program = Path()
        self._password = ""
        self._port = 0

    @property
    def data(self) -> Path:
        """The folder of the append-only file."""
        return self._home.data

    def prepare(self, _lifeline: Lifeline | None = None) -> None:
        """Everything before the start: folders, configuration, an earlier server. Raises LaunchError."""
        home = self._home
        home.open()
        self._program = home.runnable(find_valkey())
        self._password = self._read_password()
        home.make_data(self.data)
        # Two servers on one append-only file would destroy it, and Valkey itself has no lock.
        end_leftover(self._pid_file, self.data, signal.SIGTERM, wait_s=_STOP_S)
        self._port = free_port(_HOST)
        write_private(self._configuration, self._settings())
        home.give(self._configuration)

    def spec(self, stage: int) -> ChildSpec:
        """The server as a child of a supervisor."""

        async def ready() -> bool:
            return self.is_ready()

        return ChildSpec(
            name="valkey",
            argv=(str(self._program), self._home.seen(self._configuration)),
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            cwd=self.data,
            identity=self._home.identity,
            stage=stage,
            stop_s=_STOP_S,
            hurry_s=_STOP_S,
            ready=ready,
        )

    def url(self) -> str:
        """The REDIS_URL."""
        return f"redis://:{self._password}@{_HOST}:{self._port}/0"

    def is_ready(self) -> bool:
        """Whether the server answers, and has read its data by now."""
        command = f"AUTH {self._password}\r\nPING\r\nQUIT\r\n".encode()
        try:
            with socket.create_connection((_HOST, self._port), timeout=_PING_S) as connection:
                connection.sendall(command)
                answer = b""
                while chunk := connection.recv(1024):
                    answer += chunk
        except OSError:
            return False
        return b"+PONG" in answer

    @property
    def _configuration(self) -> Path:
        return self.data / "valkey.conf"

    @property
    def _pid_file(self) -> Path:
        return self.data / "valkey.pid"

    def _settings(self) -> str:
        seen = self._home.seen
        return "\n".join(
            [
                f"bind {_HOST}",
                f"port {self._port}",
                f"requirepass {self._password}",
                f'dir "{_quote(seen(self.data))}"',
                f'pidfile "{_quote(seen(self._pid_file))}"',
                "daemonize no",
                "databases 16",
                "appendonly yes",
                "appendfsync everysec",
                # The append-only file is the copy on disk; snapshots would write the same a second time.
                'save ""',
                # Counters of money live here: when memory is full, say so instead of forgetting some.
                f"maxmemory {_memory_bytes()}",
                "maxmemory-policy noeviction",
                "",
            ]
        )

    def _read_password(self) -> str:
        path = self._home.folder / "password"
        try:
            password = path.read_text().strip()
        except FileNotFoundError:
            password = secrets.token_urlsafe(32)
            write_private(path, password + "\n")
        except OSError as exc:
            raise LaunchError(f"{path} cannot be read: {exc.strerror}") from exc
        return password


def _quote(text: str) -> str:
    """Pure. A text inside double quotes in a configuration file."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _memory_bytes() -> int:
    """A quarter of the machine, within bounds: the store holds counters and queues, not data."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        total = 0
    return min(max(total // 4, _MIN_MEMORY_BYTES), _MAX_MEMORY_BYTES)
