"""The OpenAI edge: calls to models, and the models that a key may use. Everything else under `/v1` is a clear 404."""

from time import time
from typing import Any

import orjson

from relay.admission.authenticate import authenticate, key_in, may_use
from relay.call import Call
from relay.consumers.base import (
    PREFLIGHT,
    ClientGone,
    Receive,
    RelayConsumer,
    answer_json,
    internal_error,
    receive_body,
)
from relay.consumers.paths import endpoint_of
from relay.errors import CallError, ErrorKind, Refusal
from relay.metering.timing import Marks
from relay.pipeline import Pipeline
from relay.protocols.dialects import DIALECTS
from relay.protocols.openai_chat.errors import error_body, error_headers, error_status
from relay.sink import Sink
from relay.state.snapshot import ModelState

__all__ = ["OpenAIConsumer"]


class OpenAIConsumer(RelayConsumer):
    """The endpoints of the table of dialects, `/v1/models`, `/v1/models/{id}`."""

    async def handle(
        self, scope: dict[str, Any], receive: Receive, call: Call, marks: Marks, sink: Sink
    ) -> None:
        try:
            endpoint = self._endpoint(scope)
            if endpoint is None:
                await sink.start(204, PREFLIGHT)
                await sink.end()
                return
            key = key_in(scope["headers"], scope["query_string"])
            dialect = DIALECTS.get(endpoint[0])
            if dialect is not None:
                call.endpoint, call.protocol = dialect.endpoint, dialect.protocol
                walk = Pipeline(self.runtime.stations, dialect, call, marks, sink)
                await self._walk(walk, scope, receive, call, key)
            else:
                await self._models(key, endpoint[1], sink)
        except CallError as error:
            if not sink.has_started:
                await answer_json(sink, error_status(error), error_body(error), error_headers(error))
        except ClientGone:
            return
        except Exception:  # noqa: BLE001 - the door: a fault of ours must not leave the client without an answer
            fault = internal_error(call)
            if not sink.has_started:
                await answer_json(sink, error_status(fault), error_body(fault))

    def _endpoint(self, scope: dict[str, Any]) -> tuple[str, str] | None:
        """The endpoint asked for, or None for a browser's preflight. Raises Refusal (unknown_path, unknown_method)."""
        endpoint = endpoint_of(scope["path"])
        if endpoint is None:
            shown = scope["path"][:200].encode("ascii", "replace").decode()
            raise Refusal(ErrorKind.UNKNOWN_PATH, f"Unknown request URL: {scope['method']} {shown}.")
        method = scope["method"]
        if method == "OPTIONS":
            return None
        taken = "POST" if endpoint[0] in DIALECTS else "GET"
        if method != taken and not (method == "HEAD" and taken == "GET"):
            raise Refusal(ErrorKind.UNKNOWN_METHOD, f"{endpoint[0]} takes {taken}, not {method[:20]}.")
        return endpoint

    async def _walk(
        self, walk: Pipeline, scope: dict[str, Any], receive: Receive, call: Call, key: bytes
    ) -> None:
        """Read the body here, where a hang-up is an exception, then walk."""
        await walk.admit(key)
        try:
            if call.hops:
                walk.refuse_loop()
            content_type = self.given.get(b"content-type")
            if content_type is not None and b"json" not in content_type.lower():
                raise Refusal(
                    ErrorKind.BAD_CONTENT_TYPE,
                    "The body must be JSON: send 'content-type: application/json'.",
                )
            body = await receive_body(receive, self.given.get(b"content-length"))
        except Refusal as refusal:
            await walk.fail(refusal)
            return
        await self.see_through(scope, receive, call, walk.run(body))

    async def _models(self, key: bytes, name: str, sink: Sink) -> None:
        caller = await authenticate(key, self.runtime.stations.loader, self.runtime.stations.peppers, time())
        snapshot = self.runtime.stations.loader.snapshot
        if not name:
            shown = [_shown(model) for model in snapshot.models() if may_use(caller.key, model)]
            await answer_json(sink, 200, orjson.dumps({"object": "list", "data": shown}))
            return
        model = snapshot.model(name)
        if model is None or not may_use(caller.key, model):
            raise Refusal(
                ErrorKind.UNKNOWN_MODEL, f"The model '{name[:100]}' does not exist here.", param="model"
            )
        await answer_json(sink, 200, orjson.dumps(_shown(model)))


def _shown(model: ModelState) -> dict[str, object]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "yizhan"}
