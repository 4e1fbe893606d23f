"""What a process loads: a start waits for it, and every process keeps it in memory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.relay_process import RelayProcess

ROOT = Path(__file__).resolve().parents[2]
# What belongs to pages, forms, jobs and Daphne; none of it answers a call.
NOT_THE_RELAYS = re.compile(
    r"^(console|celery|kombu|redis|allauth|rest_framework|drf_spectacular|django_htmx|csp|whitenoise|daphne|twisted|yaml"
    r"|requests|httpx|django\.contrib|django\.core\.management\.commands|\w+\.models|gateway\.urls|gateway\.console_asgi|gateway\.up"
    r"|gateway\.embedded|gateway\.applyfile|psycopg_pool)(\.|$)"
)
IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


@pytest.fixture
def relay(database: str, tmp_path: Path) -> Iterator[RelayProcess]:
    process = RelayProcess(tmp_path, command=("-X", "importtime", "-m", "gateway.serve", "relay"))
    yield process
    process.close()


def test_a_relay_process_loads_nothing_of_the_console(relay: RelayProcess) -> None:
    relay.start()
    loaded = set(IMPORTED.findall(relay.log))
    assert "relay.pipeline" in loaded
    assert sorted(name for name in loaded if NOT_THE_RELAYS.match(name)) == []


@pytest.mark.parametrize("module", ["gateway.console_asgi", "gateway.celery"])
def test_no_process_but_runserver_loads_daphne(module: str) -> None:
    code = f"import sys, {module}; import django; django.setup(); print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
            "DJANGO_SETTINGS_MODULE": "gateway.settings",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = shown.stdout.split()
    assert "accounts.models" in loaded
    assert not {"daphne", "twisted", "autobahn"} & set(loaded)


def test_runserver_is_daphnes() -> None:
    shown = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "runserver", "--help"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--http_timeout" in shown.stdout
