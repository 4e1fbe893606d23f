"""One server process: `python -m gateway.serve relay --fd N` or `python -m gateway.serve console --uds PATH`.

uvicorn with uvloop and httptools (`http_protocol`). On SIGTERM the server stops accepting, the relay lets running
streams end for `DRAIN_S`, then ends the rest with the dialect's error event, ships its records and leaves.
"""

import argparse
import asyncio
import gc
import logging
import math
import os
import socket
from typing import Any

import uvicorn

from gateway import env
from gateway.http_protocol import RelayHttp
from gateway.start.gate import wait_at

__all__ = ["main"]

# After the drain: calls that were ended get their error event and a moment to take it, then whoever has not sent a
# whole request, or does not read its answer, is left. uvicorn itself would only then cancel what is still there.
CLOSE_MARGIN_S = 3
_ABORT_S = 2.0
_LOOK_S = 0.05
# No page takes as long, but for a form of which half was sent.
_PAGE_S = 10


class _RelayServer(uvicorn.Server):
    """Drains the relay while uvicorn waits for its connections."""

    def __init__(self, config: uvicorn.Config, runtime: Any, drain_s: float) -> None:
        super().__init__(config)
        self._runtime = runtime
        self._drain_s = drain_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_s
        leaving = loop.call_at(deadline + _ABORT_S, self._leave)
        drain = asyncio.create_task(self._drain(deadline))
        await super().shutdown(sockets)
        leaving.cancel()
        await drain

    async def _drain(self, deadline: float) -> None:
        """Until the deadline; a body that is still coming in may become a call meanwhile."""
        loop = asyncio.get_running_loop()
        while self.server_state.connections and (left := deadline - loop.time()) > 0:
            await self._runtime.drain(left)
            await asyncio.sleep(_LOOK_S)
        await self._runtime.drain(0)

    def _leave(self) -> None:
        """Part from clients who send or take nothing: their requests see that the connection is gone, and end."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _config(app: Any, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=RelayHttp,
        ws="websockets-sansio",
        lifespan="on",
        access_log=False,
        server_header=False,
        log_config=None,
        log_level="warning",
        timeout_keep_alive=75,
        **options,
    )


def _pass(gate: int | None) -> None:
    """Wait at the gate of a start, if there is one. Everything that takes long and needs no server comes before."""
    if gate is not None and not wait_at(gate):
        raise SystemExit("the start was given up")


def _serve_relay(fd: int, console_socket: str, gate: int | None) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    from gateway.relay_asgi import relay_application
    from gateway.relay_config import relay_config
    from relay.runtime import RelayRuntime

    runtime = RelayRuntime(relay_config())
    drain_s = env.drain_s()
    trusted = [str(network) for network in env.trusted_proxies()]
    config = _config(
        relay_application(runtime, console_socket),
        proxy_headers=bool(trusted),
        forwarded_allow_ips=trusted,
        timeout_graceful_shutdown=math.ceil(drain_s) + CLOSE_MARGIN_S,
        backlog=2048,
    )
    config.load()
    listening = socket.socket(fileno=fd)
    listening.setblocking(False)
    # Long-lived objects out of the collector's way, and fewer collections: a pause shows in every stream's p99.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)
    _pass(gate)
    _RelayServer(config, runtime, drain_s).run(sockets=[listening])


def _serve_console(path: str, gate: int | None) -> None:
    from gateway.console_asgi import application, load_pages

    config = _config(
        application,
        uds=path,
        proxy_headers=True,
        forwarded_allow_ips="*",
        timeout_graceful_shutdown=min(_PAGE_S, math.ceil(env.drain_s()) + CLOSE_MARGIN_S),
    )
    config.lifespan = "off"
    config.load()
    load_pages()
    _pass(gate)
    uvicorn.Server(config).run()


def main() -> None:
    """Entry of a server process."""
    parser = argparse.ArgumentParser(prog="gateway.serve")
    kinds = parser.add_subparsers(dest="kind", required=True)
    relay = kinds.add_parser("relay")
    relay.add_argument("--fd", type=int, required=True)
    relay.add_argument("--console", help="the console's unix socket; CONSOLE_SOCKET if not given")
    console = kinds.add_parser("console")
    console.add_argument("--uds", required=True)
    for kind in (relay, console):
        kind.add_argument(
            "--gate", type=int, help="inherited descriptor: serve only once it is open (`start.gate`)"
        )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if options.kind == "relay":
        _serve_relay(options.fd, options.console or str(env.console_socket()), options.gate)
    else:
        _serve_console(options.uds, options.gate)


if __name__ == "__main__":
    main()
