"""What the schedule names exists, and the application knows it."""

import os
import subprocess
import sys
from pathlib import Path

from django.conf import settings

from gateway.celery import app

ROOT = Path(__file__).resolve().parents[2]
TASKS = "from gateway.celery import app; app.loader.import_default_modules(); print(*app.tasks)"


def test_every_scheduled_task_is_one_that_the_worker_knows() -> None:
    # As a worker starts: Celery looks for the variable when the application is made.
    shown = subprocess.run(
        [sys.executable, "-c", TASKS],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
            "DJANGO_SETTINGS_MODULE": "gateway.settings",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert scheduled
    assert scheduled <= set(shown.stdout.split())


def test_the_schedule_expires_what_was_not_run_in_time() -> None:
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        assert entry["options"]["expires"] <= entry["schedule"], name


def test_tasks_are_acknowledged_late_and_bounded() -> None:
    assert app.conf.task_acks_late
    assert app.conf.task_time_limit
