"""A stop beside clients that keep their connection busy and send or take nothing: it takes the drain and a moment.

What runs beside them is drained as ever.
"""

import signal
import threading
import time
from collections.abc import Callable

import pytest

from gateway.serve import CLOSE_MARGIN_S
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import Tenant, World, eventually

DRAIN_S = 3.0
# Closing the books and a busy machine.
MOMENT_S = 5.0


def half_a_body(tenant: Tenant) -> RawClient:
    """The head and half of the body that it announces."""
    body = tenant.body("x" * 2000)
    client = RawClient(tenant.world.relay.port)
    head = {**tenant.auth, "content-type": "application/json", "content-length": str(len(body))}
    client.request("POST", "/v1/chat/completions", head, body[:1000])
    return client


def half_a_chunked_body(tenant: Tenant) -> RawClient:
    client = RawClient(tenant.world.relay.port)
    lines = {**tenant.auth, "content-type": "application/json", "transfer-encoding": "chunked", "host": "x"}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    client.send(f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + b'5\r\n{"mod\r\n')
    return client


def half_a_form(tenant: Tenant) -> RawClient:
    """For the console, by way of the relay."""
    client = RawClient(tenant.world.relay.port)
    client.request("POST", "/sign-in/", {"content-length": "1000"}, b"login=")
    return client


def half_a_head(tenant: Tenant) -> RawClient:
    client = RawClient(tenant.world.relay.port)
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
    return client


def nothing(tenant: Tenant) -> RawClient:
    return RawClient(tenant.world.relay.port)


def an_answer_not_read(tenant: Tenant) -> RawClient:
    return tenant.start("@practice tokens=100000,gap_ms=0@", receive_buffer=4096)


@pytest.mark.parametrize(
    "stall",
    [half_a_body, half_a_chunked_body, half_a_form, half_a_head, nothing, an_answer_not_read],
)
def test_a_client_that_stalls_does_not_hold_a_stop_up_and_others_are_drained(
    make_relay: Callable[..., World], practice: PracticeProcess, stall: Callable[[Tenant], RawClient]
) -> None:
    world = make_relay(DRAIN_S=str(DRAIN_S))
    tenant = world.tenant(practice.url)
    answers: list[Answer] = []
    with stall(tenant), tenant.start("@practice tokens=25,gap_ms=40@") as running:
        head = running.read_head()
        reader = threading.Thread(target=lambda: answers.append(running.read_rest(head)))
        reader.start()
        began = time.monotonic()
        world.relay.stop(signal.SIGTERM)
        took_s = time.monotonic() - began
        reader.join(20)
    (answer,) = answers
    assert answer.is_done
    assert took_s < DRAIN_S + CLOSE_MARGIN_S + MOMENT_S
    eventually(lambda: tenant.use()[1:] == (0, 0))
    assert "Traceback" not in world.relay.log


def test_a_body_that_comes_in_during_the_drain_is_answered_within_it(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay(DRAIN_S="20")
    tenant = world.tenant(practice.url)
    body = tenant.body("x" * 2000, stream=True)
    with RawClient(world.relay.port) as client:
        head = {**tenant.auth, "content-type": "application/json", "content-length": str(len(body))}
        client.request("POST", "/v1/chat/completions", head, body[:1000])
        world.relay.processes[0].send_signal(signal.SIGTERM)
        # Nobody is let in any more: it has begun to stop.
        eventually(lambda: not world.relay.is_ready())
        client.send(body[1000:])
        answer = client.read_answer()
    assert answer.is_done
    world.relay.stop(signal.SIGTERM)
    assert [record.status for record in tenant.check_books(1)] == ["ok"]


def test_a_call_that_begins_during_the_drain_and_outlasts_it_is_told(
    make_relay: Callable[..., World], practice: PracticeProcess
) -> None:
    world = make_relay(DRAIN_S="3")
    tenant = world.tenant(practice.url)
    body = tenant.body("@practice tokens=3000,gap_ms=20@" + "x" * 2000, stream=True)
    with RawClient(world.relay.port) as client:
        head = {**tenant.auth, "content-type": "application/json", "content-length": str(len(body))}
        client.request("POST", "/v1/chat/completions", head, body[:1000])
        world.relay.processes[0].send_signal(signal.SIGTERM)
        eventually(lambda: not world.relay.is_ready())
        client.send(body[1000:])
        answer = client.read_answer()
    assert answer.is_complete
    assert answer.error["code"] == "shutting_down"
    world.relay.processes[0].wait(20)
    assert [record.status for record in tenant.check_books(1)] == ["interrupted"]
