"""The ASGI application of a relay process: the data plane, and a hand-over of everything else to the console.

Routed with Channels' `URLRouter` before any Django; `DJANGO_SETTINGS_MODULE` is named because Channels asks for
settings, but no app is loaded.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from channels.routing import URLRouter
from django.urls import re_path

from gateway.handover import HandOver
from gateway.health import Health
from relay.consumers.openai import OpenAIConsumer
from relay.protocols.dialects import DIALECTS
from relay.runtime import RelayRuntime

__all__ = ["RELAY_PATHS", "relay_application"]

# The key-managed endpoints under /v1 are pages of the control plane; everything else there is the relay's.
RELAY_PATHS = r"^(?:openai/)?v1/(?!balance\b|usage\b|apikeys\b|apikey_groups\b)"

App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


def relay_application(runtime: RelayRuntime, console_socket: str) -> App:
    """The application; the caller starts and closes `runtime`."""
    hand_over = HandOver(console_socket)
    openai: App = OpenAIConsumer.as_asgi(runtime=runtime)
    health = Health(runtime)
    http = URLRouter(
        [
            re_path(RELAY_PATHS, openai),  # type: ignore[arg-type]
            re_path(r"", hand_over),  # type: ignore[arg-type]  # Channels routes ASGI applications
        ]
    )

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if scope["path"] in DIALECTS:  # the usual ones, without a copy of the scope
                await openai(scope, receive, send)
            elif scope["path"] in ("/healthz", "/readyz"):
                await health.answer(scope["path"], send)
            else:
                await http(scope, receive, send)
        elif scope["type"] == "websocket":
            await hand_over(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _lifespan(runtime, hand_over, receive, send)

    return application


async def _lifespan(runtime: RelayRuntime, hand_over: HandOver, receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await runtime.start()
            await send({"type": "lifespan.startup.complete"})
        else:
            await runtime.close()
            await hand_over.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
