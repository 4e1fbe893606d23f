"""The sweeper's job on a store and a database that calls have used."""

import asyncio
import os

from relay.admission.permit import PERMIT_SCRIPTS, LevelLimits, PermitRequest, Permits
from relay.admission.store import Store
from relay.tasks import sweep_holds
from tests.fakes.practice_process import PracticeProcess
from tests.wire.world import Tenant, World, eventually


def hold_and_die(tenant: Tenant, *call_ids: str) -> None:
    """Holds whose process was killed before it could settle them; their leases have run out."""

    async def take() -> None:
        store = Store(os.environ["REDIS_URL"], scripts=PERMIT_SCRIPTS)
        await store.open()
        levels = (LevelLimits("o"), LevelLimits(tenant.key_level))
        for call_id in call_ids:
            await Permits(store).permit(PermitRequest(tenant.organization.pk, call_id, 1_000, 0.001, levels))
        await store.close()

    asyncio.run(take())


def test_a_call_that_is_in_the_books_is_charged_and_another_is_not(
    world: World, practice: PracticeProcess
) -> None:
    tenant = world.tenant(practice.url)
    recorded = tenant.record(tenant.ask())
    tenant.check_books(1)
    spent = recorded.amount_nano
    hold_and_die(tenant, str(recorded.id), "019aed00-0000-7000-8000-000000000000", "no-call-id")
    assert tenant.use() == (spent, 3_000, 3)
    eventually(lambda: sweep_holds() or tenant.use()[1] == 0)
    assert tenant.use() == tenant.use(tenant.key_level) == (2 * spent, 0, 0)
