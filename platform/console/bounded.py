"""A limit on how long a page may search: PostgreSQL ends the statement, and the reader is told to narrow the time.

A list that is narrowed to something rare walks its index from the newest row on until a page is full. Over a log of
years that can take minutes; a person should rather hear soon that the range is too wide.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection, transaction
from django.utils.translation import gettext as _
from psycopg.errors import QueryCanceled

from console.calls.filters import BadFilters

__all__ = ["SEARCH_S", "bounded"]

# Chosen: longer than any page of a list takes that is narrowed to something usual, short enough to wait for.
SEARCH_S = 8.0


@contextmanager
def bounded(seconds: float = SEARCH_S) -> Iterator[None]:
    """Run the block's statements with this limit on each. Raises BadFilters, naming `from`, when one is ended by it."""
    try:
        with transaction.atomic():
            _limit(f"{int(seconds * 1000)}ms")
            yield
            _limit("0")
    except OperationalError as exc:
        if not isinstance(exc.__cause__, QueryCanceled):
            raise
        raise BadFilters({"from": _("The search took too long. Choose a shorter time.")}) from exc


def _limit(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [text])
