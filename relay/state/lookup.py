"""The look in the database that a key gets which memory does not know: once, and never more than one at a time.

All keys that wait are asked for in one query, so that a million different wrong keys cost the database one short query
after another on one connection, whatever the rate at which they come. What was found out is remembered for
`REMEMBERED_S`, for so many keys at most; so many may wait at most, and each at most `LOOK_UP_S`. Who cannot be told in
time hears `DatabaseAway`, never "no".
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import psycopg

from relay.state.keys import KeyState

__all__ = ["DatabaseAway", "KeyLookUp"]

REMEMBERED_S = 5.0
# In each of two halves, of which the older one goes when the younger one is full.
REMEMBERED = 5_000
WAITING = 1_000
LOOK_UP_S = 2.0
AT_ONCE = 200

Find = Callable[[Sequence[bytes]], Awaitable[Sequence[KeyState]]]
"""Asks the database. Returns the keys that exist. Raises DatabaseAway."""


class DatabaseAway(Exception):
    """The database could not be asked."""


class KeyLookUp:
    """The questions of one process."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._waiting: dict[tuple[bytes, ...], asyncio.Future[KeyState | None]] = {}
        self._recent: dict[bytes, tuple[float, KeyState | None]] = {}
        self._before: dict[bytes, tuple[float, KeyState | None]] = {}
        self._asking: asyncio.Task[None] | None = None

    @property
    def remembered(self) -> int:
        """Answers kept, those that have grown old included."""
        return len(self._recent) + len(self._before)

    async def find(self, fingerprints: Sequence[bytes]) -> KeyState | None:
        """The key of these fingerprints, of which each pepper gives one. None: there is none. Raises DatabaseAway."""
        known = self._recent.get(fingerprints[0]) or self._before.get(fingerprints[0])
        if known is not None and known[0] > time.monotonic():
            return known[1]
        asked = tuple(fingerprints)
        answer = self._waiting.get(asked)
        if answer is None:
            if len(self._waiting) >= WAITING:
                raise DatabaseAway("too many unknown keys at once")
            answer = self._waiting[asked] = asyncio.get_running_loop().create_future()
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask(), name="key look-up")
        try:
            async with asyncio.timeout(LOOK_UP_S):
                return await asyncio.shield(answer)
        except TimeoutError as exc:
            raise DatabaseAway from exc

    def forget(self, fingerprints: Sequence[bytes]) -> None:
        """These keys have changed."""
        for fingerprint in fingerprints:
            self._recent.pop(fingerprint, None)
            self._before.pop(fingerprint, None)

    def forget_all(self) -> None:
        self._recent, self._before = {}, {}

    async def close(self) -> None:
        """End the look that is under way; who waits for it hears that the database is away."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self) -> None:
        batch: list[tuple[bytes, ...]] = []
        try:
            while batch := list(self._waiting)[:AT_ONCE]:
                try:
                    found = await self._find([one for asked in batch for one in asked])
                except (DatabaseAway, psycopg.Error, OSError, TimeoutError) as exc:
                    self._fail(batch, exc)
                else:
                    self._answer(batch, found)
        finally:
            self._asking = None
            self._fail(list(self._waiting), None)

    def _answer(self, batch: Sequence[tuple[bytes, ...]], found: Sequence[KeyState]) -> None:
        by_fingerprint = {key.fingerprint: key for key in found}
        until = time.monotonic() + REMEMBERED_S
        for asked in batch:
            key = next((by_fingerprint[one] for one in asked if one in by_fingerprint), None)
            if key is None or key.revoked:
                self._remember(asked[0], (until, key))
            answer = self._waiting.pop(asked)
            if not answer.done():
                answer.set_result(key)

    def _fail(self, batch: Sequence[tuple[bytes, ...]], cause: BaseException | None) -> None:
        for asked in batch:
            answer = self._waiting.pop(asked)
            if not answer.done():
                failure = DatabaseAway()
                failure.__cause__ = cause
                answer.set_exception(failure)
                answer.exception()  # whoever waited may have left

    def _remember(self, fingerprint: bytes, answer: tuple[float, KeyState | None]) -> None:
        if len(self._recent) >= REMEMBERED:
            self._before, self._recent = self._recent, {}
        self._recent[fingerprint] = answer
