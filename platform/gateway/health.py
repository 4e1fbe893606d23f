"""Liveness and readiness of a relay process: `/healthz` says that it runs, `/readyz` that calls can be answered.

Ready means tried, not believed: a limit store that is connected may be out of memory or a read-only copy, a journal
that was opened may lie on a disk that is full by now, and either would refuse the next call.
"""

import asyncio
from typing import Any

import orjson

from relay.admission.wire import StoreUnavailable
from relay.runtime import RelayRuntime

__all__ = ["Health"]

# Chosen: half of a busy load balancer's interval; whoever asks more often gets the last answer.
FRESH_S = 0.5
# A start asks until it is ready, and must not wait for an old answer.
FRESH_TROUBLE_S = 0.05
# Like the keys of an organization, which a store's access rules may allow alone; none has the number 0.
_KEY = "{org:0}:ready"
_KEY_MS = 60_000
_PROBE_BYTES = b"\0" * 4096


class Health:
    """Answers for one runtime. Many who ask at once share one look."""

    def __init__(self, runtime: RelayRuntime) -> None:
        self._runtime = runtime
        self._looking = asyncio.Lock()
        self._troubles: list[str] = []
        self._fresh_until = 0.0

    async def answer(self, path: str, send: Any) -> None:
        """200, or 503 with what is missing in plain words, and no detail that a stranger could use."""
        troubles = await self.troubles() if path == "/readyz" else []
        said = {"status": "not ready", "reasons": troubles} if troubles else {"status": "ok"}
        body = orjson.dumps(said)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 503 if troubles else 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def troubles(self) -> list[str]:
        """What keeps calls from being answered; at most `FRESH_S` old, and never well against what is known."""
        loop = asyncio.get_running_loop()
        async with self._looking:
            is_doubtful = not self._troubles and not self._is_hopeful
            if loop.time() >= self._fresh_until or is_doubtful:
                self._troubles = await self._look()
                self._fresh_until = loop.time() + (FRESH_TROUBLE_S if self._troubles else FRESH_S)
        return self._troubles

    @property
    def _is_hopeful(self) -> bool:
        runtime = self._runtime
        return runtime.is_started and runtime.store.connected and not runtime.journal.is_full

    async def _look(self) -> list[str]:
        runtime = self._runtime
        if not runtime.is_started:
            return ["the process is starting or stopping"]
        found = []
        if not runtime.loader.loaded.is_set():
            found.append("keys and models are not loaded: the database has not answered yet")
        store, journal = await asyncio.gather(self._try_store(), asyncio.to_thread(self._try_journal))
        found += [trouble for trouble in (store, journal) if trouble]
        if runtime.journal.is_full:
            found.append("the journal is at its limit: the database has not taken its records for long")
        return found

    async def _try_store(self) -> str:
        """One write and one read, as every call needs them. Empty if both work."""
        store = self._runtime.store
        try:
            await store.call("SET", _KEY, "", "PX", _KEY_MS, "GET")
        except StoreUnavailable:
            pass
        else:
            return ""
        try:
            await store.call("PING")
        except StoreUnavailable:
            return "the limit store does not answer"
        return "the limit store answers, but takes no writes: it is out of memory, full or read-only"

    def _try_journal(self) -> str:
        """In a thread: a block is written beside the journal. Empty if that works."""
        probe = self._runtime.journal_dir / f"{self._runtime.journal.name}.probe"
        try:
            try:
                probe.write_bytes(_PROBE_BYTES)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as exc:
            return f"the journal cannot be written: {exc.strerror}"
        return ""
