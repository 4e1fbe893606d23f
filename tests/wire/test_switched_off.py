"""What is switched off takes no new call within a second, on every process; the calls that run on it end as usual."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from accounts.permissions import SYSTEM
from relay.models import Model, Route, Upstream
from relay.services.models import set_model_enabled, set_routes
from relay.services.upstreams import set_upstream_enabled
from tests.fakes.http_server import HttpServer, Peer, answering, chunk, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.raw_client import Answer, RawClient
from tests.fakes.relay_process import RelayProcess
from tests.wire.world import Tenant, World, at_once, eventually

SOON_S = 1.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(content: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    said = json.dumps({"id": "a", "model": "x", "choices": [choice]})
    return chunk(f"data: {said}\n\n".encode())


PLAIN = http_answer(
    b'{"id":"a","model":"x","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}',
    headers=b"content-type: application/json\r\n",
)


@contextmanager
def slow_upstream() -> Iterator[tuple[HttpServer, threading.Event]]:
    """Plain calls are answered at once. A stream says one word, and the other one when it is released."""
    release = threading.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if b'"stream":true' not in request.body.replace(b" ", b""):
                await peer.send(PLAIN)
                continue
            await peer.send(HEAD + event("one"))
            while not release.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.005)
            await peer.send(event(" two", "stop") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    with in_thread(script) as server:
        try:
            yield server, release
        finally:
            release.set()


@pytest.fixture(scope="module")
def relays(
    relay_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RelayProcess]]:
    """Two relay processes, each at an address of its own."""
    made = [RelayProcess(tmp_path_factory.mktemp("relay"), relay_env) for _ in range(2)]
    try:
        for relay in made:
            relay.start()
        yield made
    finally:
        for relay in made:
            relay.close()


@pytest.fixture
def worlds(relays: list[RelayProcess], django_db_blocker) -> Iterator[list[World]]:
    with django_db_blocker.unblock():
        made = [World(relay) for relay in relays]
        yield made
        for world in made:
            world.close()


def upstream_off(tenant: Tenant, folder: Path) -> None:
    (upstream,) = Upstream.objects.filter(routes__model=tenant.model)
    set_upstream_enabled(acting=SYSTEM, upstream=upstream, enabled=False)


def upstream_off_by_file(tenant: Tenant, folder: Path) -> None:
    (upstream,) = Upstream.objects.filter(routes__model=tenant.model)
    file = folder / "off.yaml"
    file.write_text(
        "upstreams:\n"
        f"  - {{name: {upstream.name}, protocol: openai, base_url: '{upstream.base_url}', credential: any-credential,"
        " allow_private: true, probe: false, enabled: false}\n"
    )
    call_command("apply", str(file), stdout=StringIO(), stderr=StringIO())


def model_off(tenant: Tenant, folder: Path) -> None:
    set_model_enabled(acting=SYSTEM, model=tenant.model, enabled=False)


def route_off(tenant: Tenant, folder: Path) -> None:
    Route.objects.filter(model=tenant.model).update(enabled=False)


def route_taken_away(tenant: Tenant, folder: Path) -> None:
    set_routes(acting=SYSTEM, model=Model.objects.get(pk=tenant.model.pk), routes=[])


WAYS: dict[str, tuple[Callable[[Tenant, Path], None], int]] = {
    "the upstream": (upstream_off, 503),
    "the upstream, by a file": (upstream_off_by_file, 503),
    "the model": (model_off, 404),
    "the route": (route_off, 503),
    "the route, taken away": (route_taken_away, 503),
}


@contextmanager
def running_streams(tenants: list[Tenant]) -> Iterator[list[tuple[RawClient, Answer]]]:
    """One stream on each process, of which the first word has come."""
    clients = [tenant.start() for tenant in tenants]
    try:
        opened = []
        for client in clients:
            answer = client.read_head()
            answer.pieces.append(client.read_event())
            opened.append((client, answer))
        yield opened
    finally:
        for client in clients:
            client.close()


def on_each(worlds: list[World], *urls: str) -> list[Tenant]:
    """One tenant, as seen by callers of each process, when all of them know it."""
    made = worlds[0].tenant(*urls)
    tenants = [replace(made, world=world) for world in worlds]
    for tenant in tenants:
        eventually(partial(has_status, [tenant], 200))
    return tenants


def has_status(tenants: list[Tenant], status: int) -> bool:
    return all(tenant.ask().status == status for tenant in tenants)


@pytest.mark.parametrize("way", WAYS)
def test_no_new_call_within_a_second_and_running_streams_end(
    worlds: list[World], tmp_path: Path, way: str
) -> None:
    switch_off, status = WAYS[way]
    with slow_upstream() as (server, release):
        tenants = on_each(worlds, f"{server.url}/v1")
        with running_streams(tenants) as streams:
            switch_off(tenants[0], tmp_path)
            eventually(partial(has_status, tenants, status), within_s=SOON_S)
            asked = len(server.requests)
            again = at_once({f"{number}": tenants[number % 2].ask for number in range(10)})
            assert {answer.status for answer in again.values()} == {status}
            assert len(server.requests) == asked
            release.set()
            for client, answer in streams:
                client.read_rest(answer)
                assert (answer.text, answer.is_done) == ("one two", True)
    records = tenants[0].check_books()
    assert [record.status for record in records if record.stream] == ["ok", "ok"]


def test_a_call_that_looks_for_another_upstream_does_not_take_one_that_was_switched_off(
    worlds: list[World],
) -> None:
    release = threading.Event()

    async def fails_late(peer: Peer) -> None:
        await peer.request()
        while not release.is_set():  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(0.005)

    with in_thread(answering(PLAIN)) as second, in_thread(fails_late) as first:
        tenant = worlds[0].tenant(f"{first.url}/v1", f"{second.url}/v1")
        with tenant.start(stream=None) as client:
            eventually(lambda: first.requests)
            spare = Upstream.objects.get(base_url=f"{second.url}/v1")
            set_upstream_enabled(acting=SYSTEM, upstream=spare, enabled=False)
            worlds[0].wait_known(tenant)  # and with it everything that was written before
            release.set()
            answer = client.read_answer()
        assert answer.status == 502
        assert not second.requests
    (record,) = tenant.check_books(1)
    assert [attempt["result"] for attempt in record.attempts] == ["upstream_cut"]
