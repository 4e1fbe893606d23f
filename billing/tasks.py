"""Jobs of billing."""

from celery import shared_task

from billing import partitions

__all__ = ["keep_partitions"]


@shared_task
def keep_partitions() -> list[str]:
    """Make the usage table's partitions for the coming months. The next hour's run is the retry."""
    return partitions.keep()
