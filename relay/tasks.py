"""Jobs of the relay that no call waits for. Each may run twice at once, and its next run is its retry."""

from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import redis
from celery import shared_task
from django.conf import settings
from django.utils import timezone

from accounts import scope
from accounts.models import Organization
from billing.models import UsageRecord
from relay.models import Change

__all__ = ["prune_changes", "sweep_holds"]

# A relay process that was cut off for longer than this reads everything anew when it is back.
KEEP_CHANGES = timedelta(hours=1)
_STORE_TIMEOUT_S = 5.0


@shared_task
def sweep_holds() -> int:
    """Give back the holds of processes that died, and settle what they could not: returns how many were given back."""
    from relay.admission.sweep import settle_recorded
    from relay.admission.sweep import sweep_holds as sweep

    with scope.site("sweep of holds"):
        organization_ids = list(Organization.objects.order_by("pk").values_list("pk", flat=True))
    client = redis.Redis.from_url(
        settings.LIMITS_REDIS_URL, socket_timeout=_STORE_TIMEOUT_S, socket_connect_timeout=_STORE_TIMEOUT_S
    )
    with client:
        settle_recorded(client, organization_ids, _amounts_of)
        return sweep(client, organization_ids).swept


def _amounts_of(call_ids: Collection[str]) -> dict[str, int]:
    """What those of these calls cost that are recorded. Names that are no call id are left out."""
    ids = []
    for name in call_ids:
        with suppress(ValueError):
            ids.append(UUID(name))
    with scope.site("sweep of holds"):
        found = UsageRecord.objects.filter(id__in=ids).values_list("id", "amount_nano")
        return {str(call_id): amount_nano for call_id, amount_nano in found}


@shared_task
def prune_changes() -> int:
    """Forget changes that every relay process has read long ago: returns how many."""
    with scope.site("pruning of the change log"):
        deleted, _ = Change.objects.filter(created_at__lt=timezone.now() - KEEP_CHANGES).delete()
    return deleted
