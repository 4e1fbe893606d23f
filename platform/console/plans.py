"""How PostgreSQL is told to plan the reads of the usage table that a page makes."""

from django.db import connection

__all__ = ["count_rows_not_pages"]


def count_rows_not_pages() -> None:
    """Until the end of the transaction PostgreSQL compares ways by the rows they read.

    The calls of one organization, key or model lie scattered among those of others. For that PostgreSQL takes an index
    of theirs to be dear, and rather reads everybody's newest calls until enough of them are theirs: after a quiet time,
    very many. (The newest part of the log, which pages are about, is in memory anyway.)
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('random_page_cost', '0.01', true), set_config('seq_page_cost', '0.01', true)"
        )
