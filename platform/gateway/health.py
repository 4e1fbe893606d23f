"""Liveness and readiness of a relay process: `/healthz` says that it runs, `/readyz` that calls can be answered."""

from typing import Any

import orjson

from relay.runtime import RelayRuntime

__all__ = ["answer_health"]


async def answer_health(path: str, runtime: RelayRuntime, send: Any) -> None:
    """200 or 503 with the state of each part, no detail that a stranger could use."""
    ready = runtime.is_ready
    body = orjson.dumps({"status": "ok" if path == "/healthz" or ready else "not ready"})
    status = 200 if path == "/healthz" or ready else 503
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
