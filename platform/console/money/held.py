"""What is held for calls that are running now, read from the limit store.

Use lies in the hash `{org:ID}:use` (relay.admission): for a level `s:<level>` is what is spent, `h:<level>` what is
held; level `o` is the organization, `k<id>` a key. A page must not wait for a store that is away: short deadlines, and
then nothing is known.
"""

from dataclasses import dataclass
from functools import lru_cache

import redis
from django.conf import settings

__all__ = ["ORGANIZATION", "Use", "is_reachable", "use_of"]

ORGANIZATION = "o"
# Chosen: five times the worst round trip of a busy store, and hardly noticed by a person.
TIMEOUT_S = 0.5


@dataclass(frozen=True, slots=True)
class Use:
    """Nano-units at one level. A level that was never used has 0."""

    spent_nano: int
    held_nano: int


def use_of(organization_id: int, level: str) -> Use | None:
    """What is spent and held at a level of an organization, or None if the store does not say."""
    try:
        names = [f"s:{level}", f"h:{level}"]
        spent, held = _client(settings.LIMITS_REDIS_URL).hmget(f"{{org:{organization_id}}}:use", names)
        return Use(int(spent or 0), int(held or 0))
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
