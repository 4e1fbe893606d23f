"""Turns a broken database constraint into the refusal it stands for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.db import IntegrityError, transaction

from accounts.errors import ServiceError

__all__ = ["refusing"]


@contextmanager
def refusing(refusals: Mapping[str, ServiceError]) -> Iterator[None]:
    """Run the block in a savepoint; if it breaks the constraint of that name, raise the refusal instead.

    The database decides, so that two who ask at once cannot both win. Other broken constraints are raised as
    they are.
    """
    try:
        with transaction.atomic():
            yield
    except IntegrityError as exc:
        diagnosis = getattr(exc.__cause__, "diag", None)
        refusal = refusals.get(getattr(diagnosis, "constraint_name", None) or "")
        if refusal is None:
            raise
        raise refusal from exc
