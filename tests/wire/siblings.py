"""Several relay processes of one machine over a limit store of their own, which a test may empty or kill.

Each process has a port of its own, so that a test chooses whom it asks; they share their journal folder, as the
processes of one installation do. The first one reaches the database by way of `database`, which a test may cut.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import redis

from tests.fakes.relay_process import RelayProcess
from tests.fakes.tcp_proxy import TcpProxy
from tests.relay.admission.valkey_server import ValkeyServer
from tests.wire.world import Tenant, World

__all__ = ["Siblings"]


class Siblings:
    """See the module. Started when made; `start` again after a kill."""

    def __init__(self, folder: Path, env: Mapping[str, str], count: int = 2) -> None:
        folder.mkdir(parents=True)
        self.var_dir = folder / "var"
        self.valkey = ValkeyServer(folder)
        self.valkey.start()
        self._store = redis.Redis.from_url(self.valkey.url)
        where = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query)
        self.database = TcpProxy(Path(where["host"][0]) / f".s.PGSQL.{where['port'][0]}")
        given = {**env, "LIMITS_REDIS_URL": self.valkey.url}
        envs = [{**given, "DATABASE_URL": _through(self.database)}, *([given] * (count - 1))]
        self.processes = [RelayProcess(self.var_dir, own) for own in envs]
        self.worlds = [World(process, store=self._store) for process in self.processes]
        self.start()

    def start(self) -> None:
        """Start who does not run, and let everybody reach the database."""
        self.database.restore()
        with ThreadPoolExecutor() as pool:
            list(pool.map(RelayProcess.start, self.processes))

    def known_to_all(self, tenant: Tenant) -> list[Tenant]:
        """The tenant as a caller of each process, once all of them know it."""
        callers = [replace(tenant, world=world) for world in self.worlds]
        for caller in callers:
            caller.world.wait_known(caller)
        return callers

    def lose_store(self, way: str) -> None:
        """Empty the store ("emptied"), or kill it and start it again with nothing ("killed")."""
        if way == "emptied":
            self._store.flushall()
        else:
            self.valkey.kill()
            self.valkey.start()

    def close(self) -> None:
        for process in self.processes:
            process.close()
        for world in self.worlds:
            world.close()
        self.valkey.kill()
        self.database.close()


def _through(proxy: TcpProxy) -> str:
    """The address of the database by way of the proxy."""
    query = urlencode({"host": "127.0.0.1", "port": str(proxy.port)})
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(query=query))
