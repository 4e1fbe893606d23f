"""What all tests share: real servers for the session, a migrated database per worker, the running product.

`pytest` alone works: without TEST_SERVERS in the environment the embedded PostgreSQL and Valkey are started here, once,
by the process that began the run; its workers find them through the environment.
"""

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

ROOT = Path(__file__).resolve().parents[1]
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")


def _start_servers() -> None:
    folder = Path(tempfile.mkdtemp(prefix="yizhan-test-"))
    folder.chmod(0o711)
    log = (folder / "servers.log").open("wb")
    servers = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/fakes/servers.py"), str(folder)],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
    )
    log.close()

    def stop() -> None:
        assert servers.stdin is not None
        servers.stdin.close()
        servers.wait(60)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    deadline = time.monotonic() + 90
    while not (folder / "servers.json").exists():
        if servers.poll() is not None or time.monotonic() > deadline:
            raise pytest.UsageError(
                "the test servers did not start:\n" + (folder / "servers.log").read_text()
            )
        time.sleep(0.05)
    os.environ["TEST_SERVERS"] = (folder / "servers.json").read_text()


def _point_settings_at_servers() -> None:
    """Before Django reads its settings: this worker's own database and its own number in the store."""
    found = json.loads(os.environ["TEST_SERVERS"])
    number = int(re.sub(r"\D", "", WORKER) or "0") + 1
    var = Path(tempfile.mkdtemp(prefix="yizhan-var-"))
    atexit.register(shutil.rmtree, var, ignore_errors=True)
    os.environ.update(
        DJANGO_SETTINGS_MODULE="gateway.settings",
        VAR_DIR=str(var),
        DATABASE_URL=found["login"].replace("/yizhan?", f"/test_{WORKER}?"),
        REDIS_URL=re.sub(r"/\d*$", f"/{number}", found["redis"]),
    )
    for name in ("PUBLIC_URL", "CONFIG", "HOST", "PORT", "LIMITS_REDIS_URL"):
        os.environ.pop(name, None)


if "TEST_SERVERS" not in os.environ:
    _start_servers()
_point_settings_at_servers()
django.setup()
# Not for the workers of this run: they would read the settings before they come here.
del os.environ["DJANGO_SETTINGS_MODULE"]


@pytest.fixture(scope="session")
def servers() -> dict[str, str]:
    """URLs of the session's servers: `admin` (PostgreSQL's superuser), `login`, `redis`."""
    found: dict[str, str] = json.loads(os.environ["TEST_SERVERS"])
    return found


@pytest.fixture(scope="session")
def django_db_setup(servers: dict[str, str], django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    """pytest-django's fixture, ours: a database made by the superuser, migrated as its owner."""
    import psycopg
    from django.core.management import call_command
    from django.db import connection

    from gateway.embedded.roles import ensure_roles

    name = f"test_{WORKER}"
    with psycopg.connect(servers["admin"], autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        admin.execute(f"CREATE DATABASE {name}".encode())
    with psycopg.connect(servers["admin"].replace("/postgres?", f"/{name}?")) as admin:
        ensure_roles(admin, "yizhan")
        admin.execute(f"ALTER DATABASE {name} OWNER TO relay_owner".encode())
    with django_db_blocker.unblock():
        call_command("migrate", verbosity=0)
        connection.close()
    yield
    with psycopg.connect(servers["admin"], autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def database(django_db_setup: None) -> str:
    """The address of this worker's migrated database, under the login of the application."""
    return os.environ["DATABASE_URL"]
