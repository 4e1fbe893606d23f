"""What is held for calls that are running now, read from the limit store.

Level `o` is the organization, `k<id>` a key. A page must not wait for a store that is away: short deadlines, and then
nothing is known. An organization whose counters were never told holds nothing: no call of it can run before they are.
"""

from functools import lru_cache

import redis
from django.conf import settings

from relay.admission.batch import CountersUnknown
from relay.admission.counters import read_counters
from relay.admission.limits import Use
from relay.admission.wire import StoreUnavailable

__all__ = ["ORGANIZATION", "Use", "is_reachable", "use_of"]

ORGANIZATION = "o"
# Chosen: five times the worst round trip of a busy store, and hardly noticed by a person.
TIMEOUT_S = 0.5


def use_of(organization_id: int, level: str) -> Use | None:
    """What is spent and held at a level of an organization, or None if the store does not say."""
    try:
        return read_counters(_client(settings.LIMITS_REDIS_URL), organization_id, [level])[level]
    except CountersUnknown:
        return Use(0, 0, 0)
    except StoreUnavailable:
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
