"""A relay with other bounds than the product's: `python tuned_relay.py NAME=NUMBER... --fd N`, names of RelayConfig."""

import logging
import os
import socket
import sys
from dataclasses import replace

import uvicorn

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

from gateway.relay_asgi import relay_application
from gateway.relay_config import relay_config
from relay.runtime import RelayRuntime


def main(bounds: dict[str, float], fd: int) -> None:
    logging.basicConfig(level=logging.INFO)
    runtime = RelayRuntime(replace(relay_config(), **bounds))
    app = relay_application(runtime, "no console")
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", lifespan="on", log_config=None, access_log=False
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


if __name__ == "__main__":
    *given, _, handle = sys.argv[1:]
    main({name: float(number) for name, _, number in (word.partition("=") for word in given)}, int(handle))
