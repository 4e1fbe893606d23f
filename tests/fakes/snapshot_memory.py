"""What a snapshot weighs: `python tests/fakes/snapshot_memory.py`, with a relay's environment.

Prints JSON: keys, and the resident bytes of the process before it loaded, after, after reading everything anew several
times, and after every key was asked for.
"""

import asyncio
import gc
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]

import psutil  # noqa: E402

from gateway.relay_config import relay_config  # noqa: E402
from relay.state.connection import connect  # noqa: E402
from relay.state.loader import SnapshotLoader  # noqa: E402
from tests.fakes.crowd import crowd_fingerprint  # noqa: E402

TIMES_ANEW = 3


def resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


async def main() -> None:
    config = relay_config()
    loader = SnapshotLoader(config.app, field_keys=config.field_keys)
    connection = await connect(config.app)
    async with connection:
        found = {"before": resident()}
        await loader._load_all(connection)
        await loader._free_left_over()
        found |= {"keys": loader.snapshot.key_count, "loaded": resident()}
        for _ in range(TIMES_ANEW):
            await loader._load_all(connection)
            await loader._free_left_over()
        found["anew"] = resident()
        for number in range(1, loader.snapshot.key_count):
            loader.snapshot.key(crowd_fingerprint(number))
        found["asked"] = resident()
    print(json.dumps(found))  # noqa: T201  # what this program is for


asyncio.run(main())
