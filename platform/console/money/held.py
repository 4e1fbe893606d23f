"""What is held for calls that are running now, read from the limit store.

Use lies in the hash `{org:ID}:use` (relay.admission): `h:<level>` is what is held at a level, `o` the organization.
A page must not wait for a store that is away: short deadlines, and then nothing is known.
"""

from functools import lru_cache

import redis
from django.conf import settings

__all__ = ["held_nano", "is_reachable"]

# Chosen: five times the worst round trip of a busy store, and hardly noticed by a person.
TIMEOUT_S = 0.5


def held_nano(organization_id: int) -> int | None:
    """Nano-units held by the organization's open calls, or None if the store does not say."""
    try:
        held = _client(settings.LIMITS_REDIS_URL).hget(f"{{org:{organization_id}}}:use", "h:o")
        return int(held or 0)
    except (redis.RedisError, ValueError):
        return None


def is_reachable(url: str) -> bool:
    """Whether the store at this address answers."""
    try:
        return bool(_client(url).ping())
    except redis.RedisError:
        return False


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, health_check_interval=30
    )
