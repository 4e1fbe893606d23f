"""One of several processes that ask for permits at the same time; started by test_processes.py.

Arguments: store URL, a name for its calls, organization, number of calls, hold, and budget. Prints "ready",
waits for a line, asks for all at once, and prints the ids of the granted calls.
"""

import asyncio
import sys

import uvloop

from relay.admission.permit import GRANTED, PERMIT_SCRIPTS, LevelLimits, PermitRequest, Permits
from relay.admission.store import Store


async def main(url: str, name: str, *numbers: int) -> None:
    organization_id, calls, hold_nano, budget_nano = numbers
    levels = (
        LevelLimits("o", budget_nano=budget_nano),
        LevelLimits("k1", concurrency=3 * calls, rpm=3 * calls),
    )
    store = Store(url, scripts=PERMIT_SCRIPTS, timeout_s=10)
    await store.open()
    permits = Permits(store)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)

    async def ask(number: int) -> str:
        # Some in the same turn, some in others, as calls come.
        for _ in range(number % 7):
            await asyncio.sleep(0)
        call_id = f"{name}-{number}"
        answer = await permits.permit(PermitRequest(organization_id, call_id, hold_nano, 60, levels))
        return call_id if answer == GRANTED else ""

    granted = await asyncio.gather(*map(ask, range(calls)))
    sys.stdout.write(" ".join(filter(None, granted)) + "\n")
    sys.stdout.flush()
    if sys.stdin.readline() == "settle\n":
        for call_id in filter(None, granted):
            await permits.settle(organization_id, call_id, hold_nano)
        await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
