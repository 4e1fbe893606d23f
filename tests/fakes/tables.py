"""Tables emptied by their owner: what tests leave behind that commit what they write."""

import psycopg

from gateway.database import conninfo

__all__ = ["empty_tables"]


def empty_tables(url: str) -> None:
    """Leave the database at this address as it was migrated, but for its sequences. Notifies nobody."""
    with psycopg.connect(**conninfo(url, role="relay_owner"), autocommit=True) as owner:
        owner.execute("TRUNCATE accounts_organization, accounts_user, relay_model, relay_upstream CASCADE")
        owner.execute("TRUNCATE billing_usagerecord, billing_price, relay_change")
