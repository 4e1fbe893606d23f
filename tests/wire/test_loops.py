"""A relay that is its own upstream, directly or in a ring, and headers that only look as if it were."""

import json
from collections.abc import Callable

import pytest

from accounts import scope
from accounts.keys import fingerprint
from accounts.models import Key
from relay.upstreams.hop import HOP_HEADER, Hops
from tests.fakes.http_server import Request, answering, in_thread
from tests.fakes.http_server import answer as http_answer
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import Tenant, World, eventually

NAME = HOP_HEADER.decode()
OTHER_PEPPER = "a-pepper-of-another-installation-and-long-enough-to-be-one"
SAID = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "model": "up"}
PLAIN = http_answer(json.dumps(SAID).encode(), headers=b"content-type: application/json\r\n")
CALLS: list[tuple[str, dict[str, object]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "stream": True}),
    ("/v1/completions", {"prompt": "Hello"}),
    ("/v1/completions", {"prompt": "Hello", "stream": True}),
]


def calls_itself(world: World, *more: str) -> Tenant:
    """A tenant whose model leads back to the relay, with the tenant's own key, and then to others."""
    owner = world.organization()
    key, clear = world.key(owner)
    itself = world.upstream(f"{world.relay.url}/v1", credential=clear)
    name = f"loop-{key.pk}"
    model = world.model(
        itself, *map(world.upstream, more), name=name, aliases=[f"{name}-again"], upstream_model=name
    )
    tenant = Tenant(world, owner, key, clear, model, 100 * 10**9)
    world.wait_known(tenant)
    return tenant


def hops_of(request: Request) -> list[str]:
    """The hops of a request, line by line."""
    lines = request.raw_head.decode("latin-1").split("\r\n")
    return [line.partition(": ")[2] for line in lines if line.startswith(f"{NAME}:")]


def check_refused(answer: Answer) -> None:
    assert (answer.status, answer.error["type"], answer.error["code"]) == (
        508,
        "server_error",
        "loop_detected",
    )
    assert answer.headers["x-should-retry"] == "false"
    assert "leads back to this relay" in answer.error["message"]


@pytest.mark.parametrize(("path", "fields"), CALLS)
def test_a_relay_that_calls_itself_stops_at_the_second_call(
    world: World, path: str, fields: dict[str, object]
) -> None:
    tenant = calls_itself(world)
    check_refused(tenant.call(path, **fields))
    second, first = sorted(tenant.check_books(2), key=lambda record: record.error_kind)
    assert (first.status, first.error_kind, first.http_status) == ("upstream_error", "upstream_loop", 508)
    assert [(a["result"], a["http_status"]) for a in first.attempts] == [("upstream_loop", 508)]
    assert (second.status, second.error_kind, second.http_status) == ("refused", "loop", 508)
    assert (second.attempts, first.amount_nano, second.amount_nano) == ([], 0, 0)


@pytest.mark.parametrize("stream", [True, None])
def test_a_large_body_changes_nothing(world: World, stream: bool | None) -> None:
    """The refusal comes while the body is still on its way."""
    tenant = calls_itself(world)
    check_refused(tenant.stream("word " * 1_000_000, stream=stream))
    assert sorted(record.error_kind for record in tenant.check_books(2)) == ["loop", "upstream_loop"]


def test_a_model_of_vectors_is_no_way_round(world: World) -> None:
    tenant = calls_itself(world)
    with scope.site("test"):
        type(tenant.model).objects.filter(pk=tenant.model.pk).update(kind="embedding")
    answer = eventually(
        lambda: found if (found := tenant.call("/v1/embeddings", input="a")).status != 400 else None
    )
    check_refused(answer)


def test_another_upstream_is_asked_where_one_leads_back(world: World, practice: PracticeProcess) -> None:
    with in_thread(answering(*[PLAIN] * 10)) as server:
        tenant = calls_itself(world, f"{server.url}/v1")
        assert tenant.ask().status == 200
    records = tenant.check_books(2)
    assert sorted(record.status for record in records) == ["ok", "refused"]


def test_two_relays_that_point_at_each_other_stop(world: World, make_relay: Callable[..., World]) -> None:
    """They share a database here, which makes them no less two: each has its own secrets, and its own keys."""
    other = make_relay(KEY_PEPPER=OTHER_PEPPER)
    owner = world.organization()
    key, clear = world.key(owner)
    foreign_key, foreign = world.key(owner)
    with scope.site("test"):
        theirs = fingerprint(foreign.encode(), OTHER_PEPPER.encode())
        Key.objects.filter(pk=foreign_key.pk).update(fingerprint=theirs)
    name, there = f"ring-{key.pk}", f"ring-{key.pk}-there"
    model = world.model(
        world.upstream(f"{other.relay.url}/v1", credential=foreign), name=name, upstream_model=there
    )
    world.model(world.upstream(f"{world.relay.url}/v1", credential=clear), name=there, upstream_model=name)
    tenant = Tenant(world, owner, key, clear, model, 100 * 10**9)
    world.wait_known(tenant)
    eventually(lambda: asked(other, there, foreign).status == 200)
    for number, (path, fields) in enumerate(CALLS, 1):
        check_refused(tenant.call(path, **fields))
        records = tenant.records(3 * number)[-3:]
        assert sorted(record.error_kind for record in records) == ["loop", "upstream_loop", "upstream_loop"]
        assert [record.model for record in records if record.key_id == foreign_key.pk] == [there]
        assert {record.amount_nano for record in records} == {0}
    assert eventually(lambda: tenant.use() == (0, 0, 0))


def asked(world: World, model: str, key: str) -> Answer:
    """What a relay says of a model to the owner of a key."""
    with RawClient(world.relay.port) as client:
        client.request("GET", f"/v1/models/{model}", {"authorization": f"Bearer {key}"}, b"")
        return client.read_answer()


def test_a_hop_of_this_relay_is_refused_wherever_it_comes_from(
    world: World, practice: PracticeProcess
) -> None:
    with in_thread(answering(*[PLAIN] * 10)) as server:
        tenant = world.tenant(f"{server.url}/v1")
        tenant.ask()
        (hop,) = hops_of(server.requests[0])
        for value in (hop, f"{'A' * 32}, {hop}", f"{hop},{'B' * 32}"):
            answer = tenant.send(tenant.body(), headers={NAME: value})
            assert (answer.status, answer.error["code"]) == (508, "loop_detected")
            assert "has come back" in answer.error["message"]
        assert len(server.requests) == 1
    records = tenant.check_books(4)
    assert sorted(record.error_kind for record in records) == ["", "loop", "loop", "loop"]


def test_hops_of_strangers_go_on_and_block_nothing(world: World) -> None:
    stranger = Hops([b"stranger"])
    foreign = [stranger.hop(str(number)).decode() for number in range(20)]
    with in_thread(answering(*[PLAIN] * 10)) as server:
        tenant = world.tenant(f"{server.url}/v1")
        for value, passed in (
            (foreign[0], foreign[:1]),
            (f"{foreign[0]}, {foreign[1]}", foreign[:2]),
            (f"{'A' * 32}", ["A" * 32]),
            (", ".join(foreign), foreign[-16:]),
            ("acme-relay", []),
            ("", []),
            ("x" * 5000, []),
        ):
            assert tenant.send(tenant.body(), headers={NAME: value}).status == 200
            own, *others = hops_of(server.requests[-1])
            assert len(own) == 32
            assert not stranger.is_ours(own.encode())
            assert [hop for line in others for hop in line.split(", ")] == passed
    tenant.check_books(7)


def test_every_call_upstream_carries_one_and_each_account_another(world: World) -> None:
    with in_thread(answering(*[PLAIN] * 10)) as one, in_thread(answering(PLAIN)) as two:
        first, second = world.tenant(f"{one.url}/v1"), world.tenant(f"{two.url}/v1")
        for tenant in (first, first, second):
            assert tenant.ask().status == 200
        (a,), (b,) = map(hops_of, one.requests)
        ((c,),) = map(hops_of, two.requests)
        assert a == b != c
        for tenant, hop in ((first, a), (second, c)):
            for name in (tenant.organization.name, tenant.model.name, tenant.key.name, "yizhan", "127.0.0.1"):
                assert name not in hop


def test_no_client_sees_one(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url)
    for answer in (tenant.ask(), tenant.stream(), tenant.ask("@practice status=500@")):
        assert NAME not in answer.headers
        assert NAME.encode() not in answer.body
