"""The relay's jobs, on a real store and a real database."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from accounts import scope
from accounts.models import Organization
from relay.admission.permit import PERMIT_SCRIPTS, LevelLimits, PermitRequest, Permits
from relay.admission.store import Store
from relay.models import Change
from relay.tasks import KEEP_CHANGES, prune_changes, sweep_holds

LONG_AGO_MS = 1_600_000_000_000


@pytest.fixture
def acme(db: None) -> Iterator[Organization]:
    with scope.site("test"):
        yield Organization.objects.create(name="acme", title="Acme")


async def _take_and_die(organization_id: int) -> None:
    """A hold of a process that was killed long ago."""
    store = Store(settings.LIMITS_REDIS_URL, scripts=PERMIT_SCRIPTS)
    await store.open()
    try:
        permits = Permits(store, clock_ms=lambda: LONG_AGO_MS)
        await permits.initialise(organization_id, {})
        await permits.permit(PermitRequest(organization_id, "call-1", 5, 1.0, (LevelLimits("o"),)))
        assert (await permits.read_use(organization_id, ["o"]))["o"].held_nano == 5
    finally:
        await store.close()


def test_the_sweeper_gives_back_what_a_dead_process_held(acme: Organization) -> None:
    import asyncio

    asyncio.run(_take_and_die(acme.pk))
    assert sweep_holds.run() == 1
    assert sweep_holds.run() == 0


def test_old_changes_are_forgotten_and_the_last_hour_stays(acme: Organization) -> None:
    now = timezone.now()
    Change.objects.update(created_at=now - KEEP_CHANGES - timedelta(minutes=1))
    Organization.objects.update(title="New")
    assert prune_changes.run() == 1
    assert Change.objects.count() == 1
