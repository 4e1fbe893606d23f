"""Relay and console in one process, for `runserver` and Daphne: the same consumers, the same pages.

Daphne knows no lifespan, so the relay starts with its first call. It has no back-pressure either: run production on
the two kinds of process that `manage.py up` starts.
"""

from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import re_path

from gateway.console_asgi import application as console
from gateway.relay_asgi import RELAY_PATHS
from gateway.relay_config import relay_config
from relay.consumers.openai import OpenAIConsumer
from relay.runtime import RelayRuntime

__all__ = ["application", "runtime"]

runtime = RelayRuntime(relay_config())
_routes = URLRouter([re_path(RELAY_PATHS, OpenAIConsumer.as_asgi(runtime=runtime)), re_path(r"", console)])  # type: ignore[arg-type]
_by_type: Any = ProtocolTypeRouter({"http": _routes})


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Lifespan where the server has one, else the routes."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await runtime.start()
            await send({"type": "lifespan.startup.complete"})
        await runtime.close()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await _by_type(scope, receive, send)
