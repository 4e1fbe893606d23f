"""The only writer of usage records: what the relay journalled goes in, and its charge is posted with it.

`ingest` runs inside relay processes over an asynchronous connection that has taken on the role `relay_ingest`; no ORM.
One transaction writes the records, one posting per organization over what was really inserted, and the lifetime totals
that lost limit counters are rebuilt from. The call id makes it idempotent: a batch may come twice, in any order, from
two processes at once. Rows are sorted first, so that two batches take their locks in one order.

A record whose text does not fit is cut to fit. One that the database refuses all the same is found by halving the
batch, and returned in `rejected` with the reason: it blocks no other. Whatever is no record's fault (connection lost,
deadlock, disk full) is raised, and the batch may be tried again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg

from billing import clean
from billing.records import CallRecord, unix_ms_of

__all__ = ["IngestResult", "Rejected", "ingest"]

BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that the database will not take, and why."""

    record: CallRecord
    reason: str


@dataclass(slots=True)
class IngestResult:
    """What became of a batch. A record that was there before counts as a duplicate and changed nothing."""

    inserted: int = 0
    duplicates: int = 0
    rejected: list[Rejected] = field(default_factory=list)


