"""Fixtures of the console's tests: the cast, and clients that are signed in as one of them or hold a key."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.test import Client
from django.utils import translation

from tests.console.cast import Cast, make_cast


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """A request leaves its language in force in this thread."""
    with translation.override("en"):
        yield


@pytest.fixture(autouse=True)
def no_memory_of_attempts() -> None:
    """allauth remembers failed sign-ins in the cache."""
    cache.clear()


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


@pytest.fixture
def signed_in(cast: Cast) -> Callable[[str], Client]:
    """A browser in which this person is signed in."""

    def client(name: str) -> Client:
        browser = Client()
        browser.force_login(cast.users[name])
        return browser

    return client


@pytest.fixture
def with_key(cast: Cast) -> Callable[..., Client]:
    """A program that sends this key as bearer."""

    def client(name: str, **headers: Any) -> Client:
        return Client(headers={"Authorization": f"Bearer {cast.clear[name]}", **headers})

    return client


@pytest.fixture
def store(servers: dict[str, str]) -> Iterator[redis.Redis]:
    """The limit store of this worker, empty before and after."""
    client = redis.Redis.from_url(settings.LIMITS_REDIS_URL)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()
