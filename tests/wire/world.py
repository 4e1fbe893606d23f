"""What the tests of the wire build and look at: tenants, models, upstreams, and the books behind the calls.

Everything is made with names of its own, so that tests share one relay and one database. The default price is easy to
reckon with: 2 per million input tokens, 0.2 cached, 2.5 and 4 for cache writes, 10 for output, in USD.
"""

import itertools
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar
from urllib.parse import quote

import pytest
import redis
from django.conf import settings
from django.db import connection, transaction

from accounts import scope
from accounts.keys import display_prefix, fingerprint, make_key
from accounts.models import Key, Organization
from billing.balances import balances
from billing.models import LedgerEntry, Posting, Price, UsageRecord
from relay.admission.scripts import parse_use, use_key
from relay.models import Model, Route, Upstream
from relay.state.sealing import seal, upstream_subject
from tests.fakes.raw_client import Answer, RawClient
from tests.fakes.relay_process import RelayProcess

__all__ = ["PRICE", "Tenant", "World", "at_once", "check_times", "eventually", "nano"]

PRICE = {
    "currency": "USD",
    "input": "2.00",
    "cached_input": "0.20",
    "cache_write_5m": "2.50",
    "cache_write_30m": "2.50",
    "cache_write_1h": "4.00",
    "output": "10.00",
}
T = TypeVar("T")
_numbers = itertools.count(1)


def nano(amount: str | int) -> int:
    """An amount in nano-units."""
    return int(Decimal(amount).scaleb(9))


def eventually(look: Callable[[], T], *, within_s: float = 5.0, every_s: float = 0.01) -> T:
    """What `look` gives once it is true. Fails when it is not in time."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(every_s)
    return found


def at_once(calls: Mapping[str, Callable[[], T]], *, workers: int = 12) -> dict[str, T]:
    """Make all these calls side by side; what each gave, or the exception it raised, by name."""

    def caught(call: Callable[[], T]) -> T | BaseException:
        try:
            return call()
        except BaseException as exc:  # noqa: BLE001  # given to whoever asks for this result
            return exc

    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(calls, pool.map(caught, calls.values()), strict=True))


def check_times(record: UsageRecord) -> None:
    """Stages add up to the total, and no mark lies outside it. Shown times are rounded to the microsecond."""
    assert sum(record.stages.values()) == pytest.approx(record.total_ms, abs=0.001 * (len(record.stages) + 1))
    assert all(duration > 0 for duration in record.stages.values())
    for mark in (record.ttfb_ms, record.ttft_ms):
        assert mark is None or 0 < mark <= record.total_ms + 0.001


@dataclass(slots=True)
class Tenant:
    """An organization with one key and one model, and how to call it."""

    world: "World"
    organization: Organization
    key: Key
    clear: str = field(repr=False)
    model: Model
    opening_nano: int

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.clear}"}

    def body(self, text: str = "Hello", **fields: object) -> bytes:
        """A chat request; fields given as None are left out."""
        usual = {"model": self.model.name, "messages": [{"role": "user", "content": text}]}
        merged = {**usual, **fields}
        return json.dumps({name: value for name, value in merged.items() if value is not None}).encode()

    def start(self, text: str = "Hello", *, receive_buffer: int | None = None, **fields: object) -> RawClient:
        """Send a streaming call and leave the answer to be read."""
        client = RawClient(self.world.relay.port, receive_buffer=receive_buffer)
        body = self.body(text, **{"stream": True, **fields})
        client.request(
            "POST", "/v1/chat/completions", {**self.auth, "content-type": "application/json"}, body
        )
        return client

    def stream(self, text: str = "Hello", **fields: object) -> Answer:
        """One streaming call, to its end."""
        with self.start(text, **fields) as client:
            return client.read_answer()

    def ask(self, text: str = "Hello", **fields: object) -> Answer:
        """One plain call."""
        return self.stream(text, **{"stream": None, **fields})

    def begin(self, path: str, **fields: object) -> RawClient:
        """Send a call to any endpoint and leave the answer to be read; fields given as None are left out."""
        asked = {"model": self.model.name, **fields}
        raw = json.dumps({name: value for name, value in asked.items() if value is not None}).encode()
        client = RawClient(self.world.relay.port)
        client.request("POST", path, {**self.auth, "content-type": "application/json"}, raw)
        return client

    def call(self, path: str, **fields: object) -> Answer:
        """One call to any endpoint, to its end."""
        with self.begin(path, **fields) as client:
            return client.read_answer()

    def send(
        self,
        raw: bytes,
        *,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Send these bytes; a header given as None is left out."""
        given = {**self.auth, "content-type": "application/json", **(headers or {})}
        with RawClient(self.world.relay.port) as client:
            kept = {name: value for name, value in given.items() if value is not None}
            client.request(method, path, kept, raw)
            return client.read_answer(is_head=method == "HEAD")

    def record(self, answer: Answer | str) -> UsageRecord:
        """The record of a call, which arrives within seconds."""
        call_id = answer if isinstance(answer, str) else answer.call_id
        return eventually(lambda: self._find(call_id))

    def _find(self, call_id: str) -> UsageRecord | None:
        with scope.site("test"):
            return UsageRecord.objects.filter(id=call_id).first()

    def records(self, count: int | None = None) -> list[UsageRecord]:
        """All records of the organization, oldest first; waits until there are `count`."""

        def look() -> list[UsageRecord]:
            with scope.site("test"):
                found = UsageRecord.objects.filter(organization=self.organization)
                return list(found.order_by("created_at", "id"))

        if count is None:
            return look()
        return eventually(lambda: found if len(found := look()) == count else [])

    def use(self, level: str = "o") -> tuple[int, int, int]:
        """What the limit store has on a level: spent, held, open calls."""
        return self.world.use(self.organization.pk, level)

    @property
    def key_level(self) -> str:
        return f"k{self.key.pk}"

    def balance_nano(self) -> int:
        with scope.site("test"), connection.cursor() as cursor:
            return balances(cursor, [self.organization.pk])[self.organization.pk]

    def check_books(self, calls: int | None = None) -> list[UsageRecord]:
        """No hold is left, and records, ledger and counters come to say the same. Returns the records."""
        seen: dict[str, object] = {}

        def fit() -> list[UsageRecord] | None:
            records = self.records()
            spent = sum(record.amount_nano for record in records)
            used, key_used, balance = self.use(), self.use(self.key_level), self.balance_nano()
            seen.update(records=len(records), spent=spent, used=used, key_used=key_used, balance=balance)
            is_fitting = used == key_used == (spent, 0, 0) and balance == self.opening_nano - spent
            return records if is_fitting and calls in (None, len(records)) else None

        try:
            records = eventually(fit, within_s=8)
        except AssertionError as exc:
            raise AssertionError(f"the books do not fit: {seen}") from exc
        for record in records:
            check_times(record)
        return records


class World:
    """Builds tenants for one relay. `store` is the limit store, the session's if none is given."""

    def __init__(self, relay: RelayProcess, *, store: redis.Redis | None = None) -> None:
        self.relay = relay
        self.store = store or redis.Redis.from_url(os.environ["REDIS_URL"])

    def close(self) -> None:
        self.store.close()
        connection.close()

    def use(self, organization_id: int, level: str) -> tuple[int, int, int]:
        found = parse_use(self.store.hmget(use_key(organization_id), ["epoch", level]))
        return found[0] if found else (0, 0, 0)

    def organization(self, *, balance: str = "100", currency: str = "USD", **fields: object) -> Organization:
        """An organization with its opening credit."""
        name = f"org-{os.getpid()}-{next(_numbers)}"
        with scope.site("test"):
            made = Organization.objects.create(name=name, title=name, currency=currency, **fields)
            self.top_up(made, balance, kind="opening")
        return made

    def top_up(self, organization: Organization, amount: str, *, kind: str = "top_up") -> None:
        with scope.site("test"):
            posting = Posting.objects.create(organization=organization, kind=kind)
            for account, sign in (("wallet", 1), ("received", -1)):
                LedgerEntry.objects.create(
                    posting=posting,
                    organization=organization,
                    account=account,
                    amount_nano=sign * nano(amount),
                    currency=organization.currency,
                )

    def key(
        self, organization: Organization, *, value: str | None = None, **fields: object
    ) -> tuple[Key, str]:
        """A key and its clear text."""
        clear = value or make_key()
        with scope.site("test"):
            made = Key.objects.create(
                organization=organization,
                name=f"key-{next(_numbers)}",
                prefix=display_prefix(clear),
                fingerprint=fingerprint(clear.encode(), settings.KEY_PEPPERS[0]),
                **{"scopes": ["call"], **fields},
            )
        return made, clear

    def upstream(self, url: str, *, credential: str | None = None, **fields: object) -> Upstream:
        """An account at `url`, which may lie on this machine."""
        name = f"up-{os.getpid()}-{next(_numbers)}"
        clear = credential or f"upstream-secret-{name}"
        sealed = seal(clear.encode(), settings.FIELD_KEYS, associated=upstream_subject(name))
        usual = {"protocol": "openai", "allow_private": True, "probe": False}
        return Upstream.objects.create(
            name=name, base_url=url, credential_sealed=sealed, **{**usual, **fields}
        )

    def model(
        self,
        *upstreams: Upstream,
        upstream_model: str = "practice-fast",
        price: Mapping[str, str] | None = PRICE,
        **fields: object,
    ) -> Model:
        """A model on offer with one route to each upstream, in order of priority."""
        with transaction.atomic():
            made = Model.objects.create(**{"name": f"model-{next(_numbers)}-{os.getpid()}", **fields})
            for priority, upstream in enumerate(upstreams):
                Route.objects.create(
                    model=made, upstream=upstream, upstream_model=upstream_model, priority=priority
                )
            if price is not None:
                Price.objects.create(model_name=made.name, **price)
        return made

    def tenant(
        self,
        *urls: str,
        balance: str = "100",
        price: Mapping[str, str] | None = PRICE,
        upstream_model: str = "practice-fast",
        timeouts: Mapping[str, float] | None = None,
        organization: Mapping[str, object] | None = None,
        key: Mapping[str, Any] | None = None,
        model: Mapping[str, object] | None = None,
        is_known: bool = True,
    ) -> Tenant:
        """All of it in one go; returns when the relay knows it."""
        owner = self.organization(balance=balance, **(organization or {}))
        made, clear = self.key(owner, **(key or {}))
        upstreams = [self.upstream(url, timeouts=dict(timeouts or {})) for url in urls]
        offered = self.model(*upstreams, upstream_model=upstream_model, price=price, **(model or {}))
        tenant = Tenant(self, owner, made, clear, offered, nano(balance))
        if is_known:
            self.wait_known(tenant)
        return tenant

    def wait_known(self, tenant: Tenant) -> None:
        """Until the relay has read the tenant's rows."""
        target = f"/v1/models/{quote(tenant.model.name)}"
        eventually(lambda: tenant.send(b"", method="GET", path=target).status in (200, 404, 403), within_s=10)
        _, clear = self.key(tenant.organization)
        headers = {"authorization": f"Bearer {clear}"}
        eventually(
            lambda: tenant.send(b"", method="GET", path=target, headers=headers).status == 200, within_s=10
        )

    def log_since(self, mark: int) -> str:
        """What the relay has logged behind a place in its log."""
        return self.relay.log[mark:]
