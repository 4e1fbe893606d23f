"""A relay whose comments come sooner than the product's: `python impatient_relay.py BEAT_S --fd N`."""

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


def main(beat_s: float, fd: int) -> None:
    logging.basicConfig(level=logging.INFO)
    runtime = RelayRuntime(replace(relay_config(), beat_s=beat_s))
    app = relay_application(runtime, "no console")
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", lifespan="on", log_config=None, access_log=False
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[3]))
