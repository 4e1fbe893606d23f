"""The Celery application: the jobs that no request waits for. Its schedule is in the settings.

Tasks are thin (`<room>/tasks.py`): they enter a scope, call one service and may run twice at once. Whoever
starts a worker by hand sets DJANGO_SETTINGS_MODULE=gateway.settings, as `manage.py up` does for its own.
"""

from celery import Celery

__all__ = ["app"]

app = Celery("yizhan")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
