"""An upstream that answers nobody until it is opened, and many calls that wait for it at once without a thread each."""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.fakes.http_server import HttpServer, Peer, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import Tenant, nano

__all__ = ["CEILING", "HOLD", "OUTPUT_ONLY", "WHOLE", "Gate", "MakeRush", "Rush", "gate"]

# A ceiling of 1,000 tokens at 10 per million, with input for nothing: a hold is exactly 0.01.
OUTPUT_ONLY = {"currency": "USD", "input": "0", "output": "10"}
CEILING = 1_000
HOLD = nano("0.01")
# The practice provider answers with so many tokens: the call costs its whole hold.
WHOLE = f"@practice tokens={CEILING}@"


class Gate:
    """`url` is a base address as an upstream has it; each answer says that it used `tokens`."""

    def __init__(self, server: HttpServer, opened: threading.Event) -> None:
        self._server = server
        self._opened = opened
        self.url = f"{server.url}/v1"

    @property
    def waiting(self) -> int:
        """Calls that have come so far."""
        return len(self._server.requests)

    def open(self) -> None:
        self._opened.set()


@contextmanager
def gate(*, tokens: int = CEILING) -> Iterator[Gate]:
    opened = threading.Event()
    said = http_answer(
        b'{"id":"a","model":"x","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":%d}}' % (tokens, tokens + 9),
        headers=b"content-type: application/json\r\n",
    )

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            while not opened.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.005)
            await peer.send(said)

    with in_thread(script) as server:
        try:
            yield Gate(server, opened)
        finally:
            opened.set()


class Rush:
    """Calls that were sent at once. `answers` are those that have come; a call may be cut off with its relay."""

    def __init__(self, callers: Sequence[Tenant], calls: int) -> None:
        self.answers: list[Answer] = []
        self.cut = 0
        self._selector = selectors.DefaultSelector()
        self._open = 0
        self.send(callers, calls)

    def send(self, callers: Sequence[Tenant], calls: int) -> None:
        """Send so many more, to the callers in turn."""
        for number in range(calls):
            client = callers[number % len(callers)].start(WHOLE, stream=None, max_tokens=CEILING)
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            self._open += 1

    def take(self, until: int, *, within_s: float = 30.0) -> None:
        """Read answers until only so many calls are left open. Fails if they are not in time."""
        deadline = time.monotonic() + within_s
        while self._open > until:
            left = deadline - time.monotonic()
            assert left > 0, f"{self._open} calls are open, not {until}; {len(self.answers)} were answered"
            self.take_ready(left)

    def take_ready(self, wait_s: float) -> None:
        """Read the answers that are there, or the first ones to come within this time."""
        for key, _ in self._selector.select(wait_s):
            client: RawClient = key.data
            self._selector.unregister(client.socket)
            self._open -= 1
            with client:
                try:
                    self.answers.append(client.read_answer())
                except ConnectionError:
                    self.cut += 1

    def count(self, status: int) -> int:
        return sum(answer.status == status for answer in self.answers)

    def close(self) -> None:
        """Leave the calls that are still open."""
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()


MakeRush = Callable[[Sequence[Tenant], int], Rush]
"""Sends so many calls at once, to these callers in turn: the fixture `rush`."""
