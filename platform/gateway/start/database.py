"""Servers that were given and not embedded: wait for them, look at their version, see to the roles.

All of it is for the start; the processes that work with them later make their own connections.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg

from gateway.embedded.roles import RolesMissing, ensure_roles, refuse_dangerous_role
from gateway.env_values import EnvError, parse_database_url

__all__ = ["see_to_roles", "wait_for_database", "wait_for_redis"]

# Servers are often started together with us.
_WAIT_S = 30.0
_RETRY_S = 1.0
_CONNECT_S = 3
_MIN_POSTGRES = 140000
_MIN_REDIS = 7


async def wait_for_database(url: str, say: Callable[[str], None], wait_s: float = _WAIT_S) -> None:
    """Return once the database takes our login. Raises EnvError if it does not, or is too old."""

    def version() -> int:
        with psycopg.connect(url, connect_timeout=_CONNECT_S) as connection:
            return connection.info.server_version

    parameters = parse_database_url(url)
    where = f"DATABASE_URL: the database {parameters['dbname']} on {parameters['host']}"
    if await _wait(version, psycopg.OperationalError, where, say, wait_s) < _MIN_POSTGRES:
        raise EnvError(f"{where} is older than PostgreSQL {_MIN_POSTGRES // 10000}")


async def wait_for_redis(url: str, say: Callable[[str], None], wait_s: float = _WAIT_S) -> None:
    """Return once the Redis or Valkey answers. Raises EnvError if it does not, or is too old."""
    # Here and not above: it costs a tenth of a second that a start with embedded servers need not spend.
    import redis

    def version() -> int:
        client = redis.Redis.from_url(url, socket_connect_timeout=_CONNECT_S, socket_timeout=_CONNECT_S)
        with client:
            server: Any = client.info("server")
        return int(str(server["redis_version"]).split(".", 1)[0])

    where = f"REDIS_URL: the server at {urlsplit(url).hostname}"
    if await _wait(version, redis.RedisError, where, say, wait_s) < _MIN_REDIS:
        raise EnvError(f"{where} is older than Redis {_MIN_REDIS} and Valkey 8")


def see_to_roles(url: str) -> None:
    """Make the database's roles if need be and refuse a login that sees through row-level security.

    Raises RolesError; RolesMissing carries the SQL that an administrator has to run.
    """
    with psycopg.connect(url, connect_timeout=_CONNECT_S) as connection:
        refuse_dangerous_role(connection)
        try:
            ensure_roles(connection, connection.info.user)
        except RolesMissing as exc:
            database = parse_database_url(url)["dbname"]
            text = f"{exc}; an administrator has to run this in the database {database}:"
            raise RolesMissing(text, exc.sql) from exc
        refuse_dangerous_role(connection)


async def _wait(
    ask: Callable[[], int], failure: type[Exception], where: str, say: Callable[[str], None], wait_s: float
) -> int:
    give_up_at = asyncio.get_running_loop().time() + wait_s
    said = False
    while True:
        try:
            return ask()
        except failure as exc:
            lines = str(exc).strip().splitlines()
            why = f"{where} does not answer: {lines[-1] if lines else type(exc).__name__}"
            if asyncio.get_running_loop().time() > give_up_at:
                raise EnvError(why) from exc
            if not said:
                say(f"{why}; waiting")
                said = True
        await asyncio.sleep(min(_RETRY_S, wait_s))
