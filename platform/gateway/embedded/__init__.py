"""PostgreSQL and Valkey for an installation that brings none: started from wheels, below VAR_DIR.

`Embedded` holds the two servers for `manage.py up`; `running_servers` runs them for the length of a ``with``
block, for tests. Both are the real servers, so there is one SQL dialect and one behaviour everywhere.
"""

import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded.binaries import LaunchError
from gateway.embedded.postgres import Postgres
from gateway.embedded.temporary import Temporaries
from gateway.embedded.valkey import Valkey
from gateway.supervisor import Child, make_lifeline

__all__ = [
    "FAST_AND_UNSAFE",
    "LaunchError",
    "Postgres",
    "Servers",
    "Temporaries",
    "Valkey",
    "running_servers",
]

# For tests: a power loss may destroy the data, nothing else differs.
FAST_AND_UNSAFE: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

_START_S = 60.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Servers:
    """Two running servers and how to reach them."""

    postgres: Postgres
    valkey: Valkey

    @property
    def database_url(self) -> str:
        """The login's URL of the product's database."""
        return self.postgres.url()

    @property
    def redis_url(self) -> str:
        """The URL of Valkey."""
        return self.valkey.url()


@contextlib.contextmanager
def running_servers(
    var_dir: Path | None = None,
    settings: Mapping[str, str] = FAST_AND_UNSAFE,
    *,
    postgres_major: int | None = None,
) -> Iterator[Servers]:
    """Run both servers, with database and roles made; by default in a folder that is removed afterwards.

    ``postgres_major`` asks for one version, such as the system's own, instead of the newest.

    Raises LaunchError if one does not start. To be used from the main thread: see `supervisor.lifeline`.
    """
    with contextlib.ExitStack() as stack:
        if var_dir is None:
            var_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yizhan-")))
            # As root the servers get another user, which may pass through this way.
            var_dir.chmod(0o711)
        for name in ("run", "log"):
            (var_dir / name).mkdir(parents=True, exist_ok=True)
        temporaries = Temporaries(var_dir / "run")
        stack.callback(temporaries.remove)
        lifeline = make_lifeline()
        stack.callback(lifeline.close)
        servers = Servers(
            Postgres(var_dir, temporaries, settings, major=postgres_major), Valkey(var_dir, temporaries)
        )
        for server in (servers.postgres, servers.valkey):
            server.prepare(lifeline)
            child = Child(server.spec(stage=0), lifeline=lifeline, log_dir=var_dir / "log")
            child.start()
            stack.callback(_stop, child)
            _wait_ready(server, child)
        servers.postgres.ensure_database()
        yield servers


def _wait_ready(server: Postgres | Valkey, child: Child) -> None:
    give_up_at = time.monotonic() + _START_S
    while not server.is_ready():
        if child.poll() is not None or time.monotonic() > give_up_at:
            raise LaunchError("\n".join([f"{child.spec.name} does not start", *child.last_words()]))
        time.sleep(_LOOK_S)


def _stop(child: Child) -> None:
    give_up_at = time.monotonic() + child.spec.stop_s
    child.send(child.spec.stop_signal)
    while child.pid is not None:
        if child.poll() is None and time.monotonic() > give_up_at:
            child.send(signal.SIGKILL)
        time.sleep(_LOOK_S)
