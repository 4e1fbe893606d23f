"""The practice provider runs while, and only while, a model is on offer whose name begins with "practice-".

Its port is chosen once and kept in ``VAR_DIR/run/practice.port``: upstreams in the database point to it.
"""

import asyncio
from pathlib import Path

import psycopg

from gateway.embedded.ports import free_port, is_free

__all__ = ["PracticeWatch", "choose_port"]

_HOST = "127.0.0.1"
_ASK_S = 5.0
_WANTED = b"SELECT EXISTS (SELECT 1 FROM relay_model WHERE name LIKE 'practice-%' AND enabled)"


def choose_port(run_dir: Path) -> int:
    """The port of last time if it is free, else another, which is kept."""
    kept = run_dir / "practice.port"
    try:
        text = kept.read_text().strip()
    except OSError:
        text = ""
    if text.isascii() and text.isdigit() and is_free(_HOST, int(text)):
        return int(text)
    port = free_port(_HOST)
    kept.write_text(f"{port}\n")
    return port


class PracticeWatch:
    """Asks the database, over one connection that is made again when it breaks."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._connection: psycopg.AsyncConnection[tuple[bool]] | None = None

    async def is_wanted(self) -> bool | None:
        """Whether a practice model exists; None if the database cannot say, which changes nothing."""
        try:
            async with asyncio.timeout(_ASK_S):
                return await self._ask()
        except (psycopg.Error, TimeoutError, OSError):
            await self.aclose()
            return None

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _ask(self) -> bool:
        if self._connection is None:
            self._connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL ROLE relay_app")
            await self._connection.execute("SELECT set_config('app.site', 'practice', true)")
            row = await (await self._connection.execute(_WANTED)).fetchone()
        return row is not None and row[0]
