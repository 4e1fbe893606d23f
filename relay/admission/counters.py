"""An organization's counters for synchronous code: console, tasks, commands. The relay uses `Permits`."""

from collections.abc import Mapping, Sequence
from typing import cast

import redis

from relay.admission.batch import CountersUnknown
from relay.admission.limits import Use, check_amount, check_levels
from relay.admission.scripts import INITIALISE, hold_keys, initialise_arguments, parse_use, use_key
from relay.admission.wire import StoreUnavailable

__all__ = ["initialise_counters", "read_counters"]


def read_counters(client: redis.Redis, organization_id: int, levels: Sequence[str]) -> dict[str, Use]:
    """What each level has used. Raises StoreUnavailable or CountersUnknown."""
    try:
        values = client.hmget(use_key(organization_id), ["epoch", *levels])
        numbers = parse_use(cast(list[bytes | None], values))
    except (redis.RedisError, ValueError) as exc:
        raise StoreUnavailable(f"the counters can't be read: {exc}") from exc
    if numbers is None:
        raise CountersUnknown(organization_id)
    return {level: Use(*use) for level, use in zip(levels, numbers, strict=True)}


def initialise_counters(client: redis.Redis, organization_id: int, totals: Mapping[str, int]) -> bool:
    """Say what each level has spent, unless it was said before. True if this was the one that was heard.

    A level that is not named has spent nothing. Raises StoreUnavailable.
    """
    for level, spent_nano in totals.items():
        check_levels([level])
        check_amount(spent_nano)
    try:
        client.script_load(INITIALISE.text)
        answer = client.evalsha(INITIALISE.sha, 3, *hold_keys(organization_id), *initialise_arguments(totals))
    except redis.RedisError as exc:
        raise StoreUnavailable(f"the counters can't be initialised: {exc}") from exc
    return bool(answer == 1)
