"""A PostgreSQL and a Valkey for the tests, started once for all workers: `python tests/fakes/servers.py FOLDER`.

Uses the product's own launcher. Writes FOLDER/servers.json when both answer, and stops them when standard input ends,
so that a killed test run leaves nothing behind. The server forgets on a crash: it is made for speed.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]

from gateway.embedded import Postgres, Temporaries, Valkey  # noqa: E402
from gateway.supervisor import Supervisor, make_lifeline  # noqa: E402

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}


async def main(folder: Path) -> None:
    for name in ("run", "log"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lifeline = make_lifeline()
    temporaries = Temporaries(folder / "run")
    supervisor = Supervisor(log_dir=folder / "log", lifeline=lifeline, say=sys.stderr.write)
    postgres, valkey = Postgres(folder, temporaries, FAST), Valkey(folder, temporaries)
    postgres.prepare(lifeline)
    valkey.prepare()
    supervisor.add(postgres.spec(0))
    supervisor.add(valkey.spec(0))
    keeping = asyncio.create_task(supervisor.keep())
    try:
        await supervisor.wait_ready("postgres", "valkey", timeout_s=60)
        postgres.ensure_database()
        found = {"admin": postgres.admin_url(), "login": postgres.url(), "redis": valkey.url()}
        (folder / "servers.tmp").write_text(json.dumps(found))
        (folder / "servers.tmp").rename(folder / "servers.json")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await supervisor.stop()
        temporaries.remove()
        lifeline.close()


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(main(Path(sys.argv[1])))
