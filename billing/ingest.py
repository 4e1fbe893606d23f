"""The only writer of usage records: what the relay journalled goes in, and its charge is posted with it.

`ingest` runs inside relay processes over an asynchronous connection that has taken on the role
`relay_ingest`; no ORM. One statement writes the records, one posting per organization over what was really
inserted, and the lifetime totals that lost limit counters are rebuilt from. The call id makes it idempotent:
a batch may come twice, in any order, from two processes at once. Records are inserted in the order of their
ids and totals raised in the order of their levels afterwards, so that two batches take their locks in one
order.

The batch travels as one JSON document, made of the very lines that the journal has, so that nothing is read
or written again on the way: 33,000 rows a second were measured so, against 10,000 with one array per column,
and this process has streams to serve meanwhile.

A record whose text does not fit is cut to fit. One that the database refuses all the same is found by halving
the batch and returned in `rejected` with the reason: it blocks no other. Whatever is no record's fault
(connection lost, deadlock, disk full) is raised, and the batch may be tried again.
"""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import psycopg
from psycopg.rows import scalar_row

from billing import fitting
from billing.records import CallRecord

__all__ = ["BATCH", "IngestResult", "Rejected", "ingest", "ingest_lines"]

# One statement's worth: long enough to be cheap, short enough that the totals of an organization are locked
# for some 40 ms at most.
BATCH = 1_000
# How the JSON of a record begins: its id comes first.
_BEGIN = re.compile(rb'\{"id":"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"')

_TEXT = {
    "task_id": 200,
    "client": 64,
    "endpoint": 64,
    "model": 200,
    "protocol": 24,
    "upstream": 100,
    "upstream_model": 200,
    "answered_model": 200,
    "upstream_request_id": 200,
    "service_tier": 32,
    "reasoning_effort": 32,
    "status": 16,
    "error_kind": 48,
    "end_reason": 48,
    "cache_type": 32,
    "usage_source": 12,
    "currency": 3,
}
_TOKENS = (
    "uncached_input_tokens",
    "cached_input_tokens",
    "cache_write_5m_tokens",
    "cache_write_30m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)
# A field that equals its default is not in the JSON: COALESCE puts it back.
_DEFAULT_TEXT = {"status": "ok"}
# column -> (type in the JSON, what is inserted)
COLUMNS: dict[str, tuple[str, str]] = {
    "id": ("uuid", "id"),
    "organization_id": ("bigint", "organization_id"),
    "key_id": ("bigint", "key_id"),
    "member_id": ("bigint", "member_id"),
    **{
        name: ("text", f"left(COALESCE({name}, '{_DEFAULT_TEXT.get(name, '')}'), {size})")
        for name, size in _TEXT.items()
    },
    "upstream_id": ("bigint", "upstream_id"),
    "stream": ("boolean", "COALESCE(stream, false)"),
    "http_status": ("integer", "COALESCE(http_status, 200)"),
    "attempts": ("jsonb", "COALESCE(attempts, '[]')"),
    **{name: ("bigint", f"GREATEST({name}, 0)") for name in _TOKENS},
    "usage_flags": (
        "text[]",
        f"(COALESCE(usage_flags, '{{}}') || CASE WHEN LEAST({', '.join(_TOKENS)}) < 0"
        " THEN '{negative_count}'::text[] ELSE '{}' END)::varchar(48)[]",
    ),
    "price_version": ("bigint", "price_version"),
    "amount_nano": ("bigint", "COALESCE(amount_nano, 0)"),
    "cost_nano": ("bigint", "COALESCE(cost_nano, 0)"),
    "total_ms": ("float8", "COALESCE(total_ms, 0)"),
    "ttft_ms": ("float8", "ttft_ms"),
    "ttfb_ms": ("float8", "ttfb_ms"),
    "stages": ("jsonb", "COALESCE(stages, '{}')"),
}

_GIVEN = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
_VALUES = ", ".join(value for _, value in COLUMNS.values())

# `charges` takes the ids of the postings ahead, because records are never updated: each charged record names
# its posting from the start. The time of a call is the first 48 bits of its id.
_STATEMENT = f"""
    WITH given AS MATERIALIZED (
        SELECT * FROM json_to_recordset(%s::json) AS t({_GIVEN})
    ), charges AS MATERIALIZED (
        SELECT organization_id AS payer, currency AS paid_in, nextval('billing_posting_id_seq') AS posting
        FROM (SELECT DISTINCT organization_id, left(currency, 3) AS currency
              FROM given WHERE amount_nano > 0) AS charged
    ), inserted AS (
        INSERT INTO billing_usagerecord (created_at, posting_id, {", ".join(COLUMNS)})
        SELECT timestamptz 'epoch' + interval '1 millisecond'
                   * ('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint,
               posting,
               {_VALUES}
        FROM given LEFT JOIN charges
             ON amount_nano > 0 AND payer = organization_id AND paid_in IS NOT DISTINCT FROM left(currency, 3)
        ORDER BY id
        ON CONFLICT DO NOTHING
        RETURNING organization_id, key_id, currency, amount_nano, posting_id
    ), posted AS (
        INSERT INTO billing_posting (id, organization_id, kind, reference, memo, created_at)
        SELECT posting_id, organization_id, 'usage', gen_random_uuid(), '', now()
        FROM inserted WHERE posting_id IS NOT NULL GROUP BY posting_id, organization_id
    ), entered AS (
        INSERT INTO billing_ledgerentry (posting_id, organization_id, account, amount_nano, currency)
        SELECT posting_id, organization_id, side.account, side.sign * sum(amount_nano), currency
        FROM inserted CROSS JOIN (VALUES ('wallet', -1), ('revenue', 1)) AS side(account, sign)
        WHERE posting_id IS NOT NULL
        GROUP BY posting_id, organization_id, currency, side.account, side.sign
    ), totals AS (
        INSERT INTO billing_spenttotal AS t (organization_id, level, spent_nano, calls)
        SELECT organization_id, level, sum(amount_nano), count(*)
        FROM inserted CROSS JOIN LATERAL (VALUES ('o'), ('k' || key_id)) AS at(level)
        GROUP BY organization_id, level ORDER BY organization_id, level
        ON CONFLICT (organization_id, level) DO UPDATE
            SET spent_nano = t.spent_nano + excluded.spent_nano, calls = t.calls + excluded.calls
    )
    SELECT count(*) FROM inserted
"""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that the database will not take, as its line of JSON, and why."""

    line: bytes
    reason: str

    @property
    def record(self) -> CallRecord:
        return msgspec.json.decode(self.line, type=CallRecord)


@dataclass(slots=True)
class IngestResult:
    """What became of a batch. A record that was there before counts as a duplicate and changed nothing."""

    inserted: int = 0
    duplicates: int = 0
    rejected: list[Rejected] = field(default_factory=list)


async def ingest(connection: psycopg.AsyncConnection, records: Sequence[CallRecord]) -> IngestResult:
    """`ingest_lines` for records that are no JSON yet."""
    return await ingest_lines(connection, [fitting.encode_record(record) for record in records])


async def ingest_lines(connection: psycopg.AsyncConnection, lines: Sequence[bytes]) -> IngestResult:
    """Write the records down and post their charge. Each line is the JSON of a `CallRecord`, as the journal
    has it. `connection` must have taken on `relay_ingest` and be idle.

    Each `BATCH` of records is one transaction. Raises psycopg.Error for what is no record's fault; what was
    written before stays, and the same records may be given again.
    """
    result = IngestResult()
    usable = []
    for line in lines:
        if _BEGIN.match(line):
            usable.append(line)
        else:
            result.rejected.append(Rejected(line, "the id is not a UUIDv7"))
    for start in range(0, len(usable), BATCH):
        await _write(connection, usable[start : start + BATCH], result)
    return result


async def _write(connection: psycopg.AsyncConnection, batch: list[bytes], result: IngestResult) -> None:
    try:
        # Deferred constraints (balance, organization) are checked at commit: their errors belong to the batch
        # too. One statement is a transaction of its own where the connection commits by itself.
        together = contextlib.nullcontext() if connection.autocommit else connection.transaction()
        async with together, connection.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(_STATEMENT, [_document(batch)])
            written = await cursor.fetchone() or 0
    except (psycopg.DataError, psycopg.IntegrityError) as exc:
        if len(batch) == 1:
            result.rejected.append(Rejected(batch[0], str(exc).partition("\n")[0]))
            return
        middle = len(batch) // 2
        await _write(connection, batch[:middle], result)
        await _write(connection, batch[middle:], result)
        return
    result.inserted += written
    result.duplicates += len(batch) - written


def _document(batch: list[bytes]) -> str:
    """The batch as one JSON array that PostgreSQL takes as text: no NUL."""
    document = b"[%b]" % b",".join(batch)
    if b"\\u0000" in document:
        records = [msgspec.json.decode(line, type=CallRecord) for line in batch]
        document = msgspec.json.encode([fitting.storable(record) for record in records])
    return document.decode()
