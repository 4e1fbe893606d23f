"""Whether the console process lives, and whether it can do its work."""

from functools import lru_cache

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from console.money import held

__all__ = ["live", "ready"]

_OK = "ok"
_AWAY = "away"


@require_safe
def live(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers at all."""
    return JsonResponse({"status": _OK})


@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """200 if the database answers and has every migration, and the stores answer; else 503 with what is missing."""
    checks = {
        "database": _database(),
        "store": _store(settings.REDIS_URL),
        "limits": _store(settings.LIMITS_REDIS_URL),
    }
    whole = all(state == _OK for state in checks.values())
    return JsonResponse({"status": _OK if whole else "unavailable", **checks}, status=200 if whole else 503)


def _store(url: str) -> str:
    return _OK if held.is_reachable(url) else _AWAY


def _database() -> str:
    """`ok`, `away` (no answer) or `migrations pending`: half a migration looks healthy until the first call fails."""
    try:
        applied = MigrationRecorder(connection).applied_migrations()
    except DatabaseError:
        return _AWAY
    return "migrations pending" if _wanted_migrations() - applied.keys() else _OK


@lru_cache(maxsize=1)
def _wanted_migrations() -> frozenset[tuple[str, str]]:
    """The migrations of this release, as (app, name). They do not change while the process runs."""
    return frozenset(MigrationLoader(None).graph.nodes)
