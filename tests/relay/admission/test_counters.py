"""The counters for synchronous code."""

import pytest
import redis

from relay.admission.counters import initialise_counters, read_counters
from relay.admission.permit import CountersUnknown, LevelLimits, PermitRequest, Permits, StoreUnavailable, Use
from tests.relay.admission.valkey_server import ValkeyServer


async def test_it_works(permits: Permits, fresh_id: int, client: redis.Redis) -> None:
    assert initialise_counters(client, fresh_id, {"o": 2**63 - 1, "k1": 5})
    await permits.permit(PermitRequest(fresh_id, "c1", 7, 60, (LevelLimits("o"),)))
    assert read_counters(client, fresh_id, ["o", "k1"]) == {"o": Use(2**63 - 1, 7, 1), "k1": Use(5, 0, 0)}
    assert read_counters(client, fresh_id, ["k1"]) == await permits.read_use(fresh_id, ["k1"])


def test_only_the_first_initialisation_is_heard(fresh_id: int, client: redis.Redis) -> None:
    assert initialise_counters(client, fresh_id, {"o": 1})
    assert not initialise_counters(client, fresh_id, {"o": 2})
    assert read_counters(client, fresh_id, ["o"]) == {"o": Use(1, 0, 0)}


def test_unknown_counters_are_not_zero(fresh_id: int, client: redis.Redis) -> None:
    with pytest.raises(CountersUnknown):
        read_counters(client, fresh_id, ["o"])


def test_a_total_out_of_range_is_not_sent(fresh_id: int, client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="amount"):
        initialise_counters(client, fresh_id, {"o": -1})


def test_a_nonsense_counter_is_told(fresh_id: int, client: redis.Redis) -> None:
    initialise_counters(client, fresh_id, {})
    client.hset(f"{{org:{fresh_id}}}:use", "o", "many")
    with pytest.raises(StoreUnavailable, match="read"):
        read_counters(client, fresh_id, ["o"])


def test_a_store_that_is_away_is_told(own_server: ValkeyServer) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        own_server.kill()
        with pytest.raises(StoreUnavailable, match="read"):
            read_counters(client, 1, ["o"])
        with pytest.raises(StoreUnavailable, match="initialised"):
            initialise_counters(client, 1, {})
