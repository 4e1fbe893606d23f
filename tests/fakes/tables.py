"""Tables emptied by their owner: what tests leave behind that commit what they write."""

import psycopg

from gateway.database import conninfo

__all__ = ["empty_tables"]

# A relay that still reads its snapshot takes its locks in another order; one of the two is told to try again.
TRIES = 5


def empty_tables(url: str) -> None:
    """Leave the database at this address as it was migrated, but for its sequences. Notifies nobody."""
    with psycopg.connect(**conninfo(url, role="relay_owner"), autocommit=True) as owner:
        for attempts_left in reversed(range(TRIES)):
            try:
                owner.execute(
                    "TRUNCATE accounts_organization, accounts_user, relay_model, relay_upstream CASCADE"
                )
                owner.execute("TRUNCATE billing_usagerecord, billing_usagehour, billing_price, relay_change")
                return
            except psycopg.errors.DeadlockDetected:
                if not attempts_left:
                    raise
