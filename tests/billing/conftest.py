import os
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import psycopg
import pytest
from django.db import connection
from psycopg.rows import dict_row

from accounts import scope
from accounts.models import Organization
from billing.records import CallRecord
from gateway.database import Role
from tests.fakes.tables import empty_tables

Connect = Callable[..., Awaitable[psycopg.AsyncConnection]]


def conninfo(role: Role) -> dict[str, str]:
    """How to reach the database of the tests as `role`, beside Django."""
    settings = connection.settings_dict
    keys = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    found = {name: str(settings[key]) for name, key in keys.items() if settings[key]}
    return {**found, "options": f"-c role={role}"}


@pytest.fixture
def committed(django_db_setup: None, django_db_blocker) -> Iterator[None]:
    """What a test writes is committed, so that others see it, and emptied by the owner afterwards."""
    with django_db_blocker.unblock():
        yield
        connection.close()
        empty_tables(os.environ["DATABASE_URL"])


@pytest.fixture
async def connect(committed: None) -> AsyncIterator[Connect]:
    """Opens asynchronous connections with a role of their own; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def opened(role: Role = "relay_ingest") -> psycopg.AsyncConnection:
            made = await psycopg.AsyncConnection.connect(
                **conninfo(role), autocommit=True, row_factory=dict_row
            )
            return await stack.enter_async_context(made)

        yield opened


@pytest.fixture
def acme(committed: None) -> Organization:
    return _organization("acme")


@pytest.fixture
def stranger(committed: None) -> Organization:
    """Somebody else's organization, which must see nothing of acme's."""
    return _organization("stranger")


def _organization(name: str) -> Organization:
    with scope.site("test"):
        return Organization.objects.create(name=name, title=name.title(), currency="CNY")


def call_id(rng: random.Random) -> str:
    """A UUIDv7 of now, as the relay makes them."""
    bits = int(time.time() * 1000) << 80 | 7 << 76 | rng.getrandbits(12) << 64 | 2 << 62 | rng.getrandbits(62)
    return str(uuid.UUID(int=bits))


@pytest.fixture
def call() -> Callable[..., CallRecord]:
    """Makes records of calls; amounts and all else can be given by name."""
    rng = random.Random(7)

    def made(organization: Organization, **given: object) -> CallRecord:
        usual = {"id": call_id(rng), "organization_id": organization.pk, "key_id": 1, "model": "m"}
        return CallRecord(**{**usual, "currency": "CNY", "amount_nano": 100, **given})

    return made
