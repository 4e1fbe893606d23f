"""What the control plane writes takes effect within a second; with the database away, calls go on."""

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone

from accounts import scope
from accounts.models import Key
from billing.models import Price
from relay.models import Model, Route, Upstream
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.fakes.tcp_proxy import TcpProxy, database_through
from tests.wire.world import PRICE, Tenant, World, at_once, eventually

SOON_S = 1.0


@pytest.fixture
def tenant(world: World, practice: PracticeProcess) -> Tenant:
    made = world.tenant(practice.url)
    assert made.ask().status == 200
    return made


def soon(look: Callable[[], object]) -> float:
    """Seconds until it is so, which is less than one."""
    began = time.monotonic()
    eventually(look, within_s=SOON_S)
    return time.monotonic() - began


def test_a_new_key_works_at_once(world: World, tenant: Tenant) -> None:
    _, clear = world.key(tenant.organization)
    headers: dict[str, str | None] = {"authorization": f"Bearer {clear}"}
    assert tenant.send(tenant.body(), headers=headers).status == 200


def test_a_key_that_was_refused_before_it_was_made_works_soon(world: World, tenant: Tenant) -> None:
    value = f"a-key-to-be-made-later-{time.time_ns()}"
    headers: dict[str, str | None] = {"authorization": f"Bearer {value}"}
    assert tenant.send(tenant.body(), headers=headers).status == 401
    world.key(tenant.organization, value=value)
    soon(lambda: tenant.send(tenant.body(), headers=headers).status == 200)


def test_a_new_organization_with_its_key_works_soon(world: World, tenant: Tenant) -> None:
    owner = world.organization()
    _, clear = world.key(owner)
    headers: dict[str, str | None] = {"authorization": f"Bearer {clear}"}
    soon(lambda: tenant.send(tenant.body(), headers=headers).status == 200)


def test_a_key_that_is_changed(tenant: Tenant) -> None:
    with scope.site("test"):
        Key.objects.filter(pk=tenant.key.pk).update(allowed_models=["another"])
    soon(lambda: tenant.ask().status == 403)
    with scope.site("test"):
        Key.objects.filter(pk=tenant.key.pk).update(allowed_models=None)
    soon(lambda: tenant.ask().status == 200)


def test_a_key_that_is_deleted(tenant: Tenant) -> None:
    with scope.site("test"):
        Key.objects.filter(pk=tenant.key.pk).delete()
    soon(lambda: tenant.ask().status == 401)


def charged(tenant: Tenant) -> int:
    """The amount of one call that says one token, with input for nothing."""
    return tenant.record(tenant.ask("@practice tokens=1@")).amount_nano


def test_a_price_that_is_changed(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price={"currency": "USD", "input": "0", "output": "10"})
    assert charged(tenant) == 10_000
    before = tenant.records(1)[0].price_version
    made = Price.objects.create(model_name=tenant.model.name, currency="USD", input="0", output="30")
    soon(lambda: charged(tenant) == 30_000)
    assert tenant.records()[-1].price_version == made.pk != before


def test_a_price_comes_into_force_at_its_time(world: World, practice: PracticeProcess) -> None:
    tenant = world.tenant(practice.url, price={"currency": "USD", "input": "0", "output": "10"})
    due = timezone.now() + timedelta(seconds=2)
    Price.objects.create(model_name=tenant.model.name, currency="USD", input="0", output="30", valid_from=due)
    later = due + timedelta(days=1)
    Price.objects.create(
        model_name=tenant.model.name, currency="USD", input="0", output="90", valid_from=later
    )
    while timezone.now() < due - timedelta(seconds=0.3):
        assert charged(tenant) == 10_000
    eventually(lambda: charged(tenant) == 30_000, within_s=SOON_S + 0.3)


def test_a_model_that_is_switched_off_and_on(tenant: Tenant) -> None:
    Model.objects.filter(pk=tenant.model.pk).update(enabled=False)
    soon(lambda: tenant.ask().status == 404)
    Model.objects.filter(pk=tenant.model.pk).update(enabled=True)
    soon(lambda: tenant.ask().status == 200)


def test_a_model_gets_an_alias(tenant: Tenant) -> None:
    alias = f"alias-of-{tenant.model.name}"
    assert tenant.ask(model=alias).status == 404
    Model.objects.filter(pk=tenant.model.pk).update(aliases=[alias])
    soon(lambda: tenant.ask(model=alias).status == 200)


def test_an_upstream_that_is_switched_off_or_moved(tenant: Tenant, practice: PracticeProcess) -> None:
    upstream = Route.objects.get(model=tenant.model).upstream
    Upstream.objects.filter(pk=upstream.pk).update(enabled=False)
    soon(lambda: tenant.ask().status == 503)
    Upstream.objects.filter(pk=upstream.pk).update(enabled=True, base_url="http://127.0.0.1:1/v1")
    soon(lambda: tenant.ask().status == 502)
    Upstream.objects.filter(pk=upstream.pk).update(base_url=practice.url)
    soon(lambda: tenant.ask().status == 200)


def test_an_upstream_on_this_machine_needs_leave(tenant: Tenant) -> None:
    Upstream.objects.filter(routes__model=tenant.model).update(allow_private=False)
    soon(lambda: tenant.ask().status == 502)
    assert tenant.record(tenant.ask()).attempts[0]["result"] == "upstream_unreachable"


def test_a_credential_that_no_key_opens_switches_the_upstream_off(tenant: Tenant) -> None:
    Upstream.objects.filter(routes__model=tenant.model).update(credential_sealed=b"\x01" + b"x" * 60)
    soon(lambda: tenant.ask().status == 503)


def test_a_route_that_is_added_and_taken_away(
    world: World, tenant: Tenant, practice: PracticeProcess
) -> None:
    second = world.upstream(practice.url)
    (first,) = Route.objects.filter(model=tenant.model)
    Route.objects.create(model=tenant.model, upstream=second, upstream_model="practice-chat")
    first.delete()
    soon(lambda: tenant.record(tenant.ask()).upstream_model == "practice-chat")


# The database away.


def test_without_the_database_known_keys_work_and_records_wait(
    make_relay: Callable[..., World], practice: PracticeProcess, database_proxy: TcpProxy
) -> None:
    world = make_relay(DATABASE_URL=database_through(database_proxy))
    tenant = world.tenant(practice.url)
    answers: list[Answer] = [tenant.ask()]
    tenant.check_books(1)
    _, unknown = world.key(tenant.organization)
    eventually(lambda: tenant.send(b"", method="GET", path="/v1/models").status == 200)
    database_proxy.cut()
    answers += [tenant.ask(), tenant.stream(), tenant.ask("@practice status=500@")]
    assert [answer.status for answer in answers] == [200, 200, 200, 502]
    # Nobody can say whether a key is wrong that memory does not know.
    answer = tenant.send(tenant.body(), headers={"authorization": "Bearer sk-nobody-knows-this-one"})
    assert (answer.status, answer.error["code"]) == (503, "not_ready")
    assert int(answer.headers["retry-after"]) >= 1
    assert unknown
    eventually(lambda: tenant.use()[1:] == (0, 0))
    assert len(tenant.records()) == 1
    assert tenant.balance_nano() > tenant.opening_nano - tenant.use()[0]
    # What was changed meanwhile is read when the database is back.
    with scope.site("test"):
        Price.objects.create(model_name=tenant.model.name, **{**PRICE, "output": "1000"})
    database_proxy.restore()
    tenant.check_books(4)
    assert {str(record.id) for record in tenant.records()} == {answer.call_id for answer in answers}
    eventually(lambda: tenant.record(tenant.ask("@practice tokens=1@")).amount_nano >= 1_000_000)
    said = tenant.send(tenant.body(), headers={"authorization": "Bearer sk-nobody-knows-this-one"})
    assert (said.status, said.error["code"]) == (401, "invalid_api_key")
    assert "Traceback" not in world.relay.log
    assert world.relay.log.count("usage records wait in the journal") == 1


@pytest.mark.parametrize("trouble", ["cut", "hold"])
def test_without_the_database_nobody_is_told_that_a_key_is_wrong(
    make_relay: Callable[..., World], practice: PracticeProcess, database_proxy: TcpProxy, trouble: str
) -> None:
    """However many are asked about, and whether the database is gone or only silent."""
    world = make_relay(DATABASE_URL=database_through(database_proxy))
    tenant = world.tenant(practice.url)

    def guess(number: int) -> Answer:
        return tenant.send(tenant.body(), headers={"authorization": f"Bearer sk-nobody-knows-this-{number}"})

    assert (guess(0).status, tenant.ask().status) == (401, 200)
    getattr(database_proxy, trouble)()
    told = at_once({f"{number}": partial(guess, number) for number in range(1, 25)}, workers=24)
    assert {answer.status for answer in told.values()} == {503}
    assert {answer.headers["retry-after"] for answer in told.values()} == {"2"}
    assert tenant.ask().status == 200
    database_proxy.restore()
    eventually(lambda: guess(1).status == 401, within_s=30)
    _, clear = world.key(tenant.organization)
    headers: dict[str, str | None] = {"authorization": f"Bearer {clear}"}
    eventually(lambda: tenant.send(tenant.body(), headers=headers).status == 200, within_s=30)


def test_records_that_waited_outlive_the_process(
    make_relay: Callable[..., World], practice: PracticeProcess, database_proxy: TcpProxy
) -> None:
    world = make_relay(DATABASE_URL=database_through(database_proxy))
    tenant = world.tenant(practice.url)
    database_proxy.cut()
    answers = [tenant.ask(), tenant.stream()]
    world.relay.kill()
    assert tenant.records() == []
    database_proxy.restore()
    world.relay.start()
    assert {str(record.id) for record in tenant.check_books(2)} == {answer.call_id for answer in answers}
