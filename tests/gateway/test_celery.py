"""What the schedule names exists, and the application knows it."""

from django.conf import settings

from gateway.celery import app


def test_every_scheduled_task_is_one_that_the_worker_knows() -> None:
    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert scheduled
    assert scheduled <= set(app.tasks)


def test_the_schedule_expires_what_was_not_run_in_time() -> None:
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        assert entry["options"]["expires"] <= entry["schedule"], name


def test_tasks_are_acknowledged_late_and_bounded() -> None:
    assert app.conf.task_acks_late
    assert app.conf.task_time_limit
