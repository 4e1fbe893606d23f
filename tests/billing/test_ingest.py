import asyncio
import os
import random
import socket
from collections.abc import Callable
from datetime import datetime

import msgspec
import psycopg
import pytest

from accounts.models import Organization
from billing import ingest as module
from billing.ingest import COLUMNS, ingest
from billing.records import CallRecord, created_at_of

Call = Callable[..., CallRecord]


async def books(owner: psycopg.AsyncConnection, organization: Organization) -> dict[str, object]:
    """What the database says of an organization, in a few numbers."""

    async def rows(query: str) -> list[dict[str, object]]:
        return await (await owner.execute(query, [organization.pk])).fetchall()

    records = await rows("SELECT amount_nano FROM billing_usagerecord WHERE organization_id = %s")
    entries = await rows("SELECT account, amount_nano FROM billing_ledgerentry WHERE organization_id = %s")
    totals = await rows("SELECT level, spent_nano, calls FROM billing_spenttotal WHERE organization_id = %s")
    return {
        "records": len(records),
        "amounts": sum(row["amount_nano"] for row in records),
        "postings": len(await rows("SELECT id FROM billing_posting WHERE organization_id = %s")),
        "wallet": sum(row["amount_nano"] for row in entries if row["account"] == "wallet"),
        "revenue": sum(row["amount_nano"] for row in entries if row["account"] == "revenue"),
        "spent": {row["level"]: (row["spent_nano"], row["calls"]) for row in totals},
    }


async def stored(owner: psycopg.AsyncConnection, call_id: str) -> dict[str, object]:
    row = await (await owner.execute("SELECT * FROM billing_usagerecord WHERE id = %s", [call_id])).fetchone()
    assert row is not None
    return row


@pytest.fixture
async def owner(connect) -> psycopg.AsyncConnection:
    return await connect("relay_owner")


@pytest.fixture
async def ingesting(connect) -> psycopg.AsyncConnection:
    return await connect("relay_ingest")


async def test_a_batch_is_recorded_posted_and_totalled(
    acme: Organization, call: Call, ingesting, owner
) -> None:
    result = await ingest(ingesting, [call(acme, key_id=1), call(acme, key_id=2, amount_nano=50)])
    assert (result.inserted, result.duplicates, result.rejected) == (2, 0, [])
    assert await books(owner, acme) == {
        "records": 2,
        "amounts": 150,
        "postings": 1,
        "wallet": -150,
        "revenue": 150,
        "spent": {"o": (150, 2), "k1": (100, 1), "k2": (50, 1)},
    }


async def test_every_field_is_stored_as_it_was_journalled(
    acme: Organization, call: Call, ingesting, owner
) -> None:
    record = call(
        acme,
        key_id=9,
        member_id=8,
        task_id="task",
        client="claude-code",
        endpoint="/v1/messages",
        model="kimi-k2",
        protocol="anthropic",
        upstream_id=3,
        upstream="kimi-a",
        upstream_model="kimi-k2-0905",
        answered_model="kimi-k2",
        upstream_request_id="req",
        service_tier="standard",
        reasoning_effort="high",
        stream=True,
        status="upstream_error",
        http_status=502,
        error_kind="cut",
        end_reason="eof",
        attempts=[{"upstream": "kimi-a", "ms": 1.5}],
        uncached_input_tokens=1,
        cached_input_tokens=2,
        cache_write_5m_tokens=3,
        cache_write_30m_tokens=4,
        cache_write_1h_tokens=5,
        output_tokens=6,
        reasoning_tokens=7,
        cache_type="explicit",
        usage_source="partial",
        usage_flags=["total_mismatch", "x"],
        price_version=11,
        amount_nano=12,
        cost_nano=13,
        total_ms=14.5,
        ttft_ms=15.5,
        ttfb_ms=16.5,
        stages={"prefill": 17.5},
    )
    assert not {f.name for f in msgspec.structs.fields(CallRecord) if getattr(record, f.name) == f.default}
    await ingest(ingesting, [record])
    row = await stored(owner, record.id)
    for name in set(record.__struct_fields__) - {"id"}:
        assert row[name] == getattr(record, name), name
    assert row["created_at"] == created_at_of(record.id)


async def test_fields_that_were_not_given_are_stored_as_their_defaults(
    acme: Organization, ingesting, owner
) -> None:
    record = CallRecord(id="01936c1a-0000-7000-8000-000000000001", organization_id=acme.pk, key_id=1)
    assert (await ingest(ingesting, [record])).inserted == 1
    row = await stored(owner, record.id)
    for name in set(record.__struct_fields__) - {"id"}:
        assert row[name] == getattr(record, name), name


def test_the_statement_names_every_field_of_a_record() -> None:
    assert set(COLUMNS) == set(CallRecord.__struct_fields__)


async def test_the_same_batch_again_changes_nothing(acme: Organization, call: Call, ingesting, owner) -> None:
    batch = [call(acme) for _ in range(3)]
    await ingest(ingesting, batch)
    before = await books(owner, acme)
    result = await ingest(ingesting, [*batch, call(acme, amount_nano=0), batch[0]])
    assert (result.inserted, result.duplicates) == (1, 4)
    after = await books(owner, acme)
    assert (after["records"], after["wallet"], after["postings"]) == (4, before["wallet"], before["postings"])


async def test_two_processes_with_the_same_batch_write_it_once(
    acme: Organization, call: Call, connect, owner
) -> None:
    batch = [call(acme, key_id=n % 5) for n in range(200)]
    for other in (batch, batch[::-1]):
        fresh = [msgspec.structs.replace(record, id=call(acme).id) for record in batch]
        backwards = fresh if other is batch else fresh[::-1]
        first, second = await asyncio.gather(
            ingest(await connect(), fresh), ingest(await connect(), backwards)
        )
        assert first.inserted + second.inserted == first.duplicates + second.duplicates == 200
    found = await books(owner, acme)
    assert found["records"] == 400
    assert found["wallet"] == -40_000
    assert found["spent"]["o"] == (40_000, 400)


async def test_many_processes_with_overlapping_batches_never_deadlock(
    acme, stranger, call: Call, connect, owner
) -> None:
    rng = random.Random(3)
    calls = [call(rng.choice([acme, stranger]), key_id=rng.randrange(9)) for _ in range(300)]

    async def process(seed: int) -> int:
        connection = await connect()
        mine = random.Random(seed)
        return sum([(await ingest(connection, mine.sample(calls, 120))).inserted for _ in range(6)])

    inserted = sum(await asyncio.gather(*(process(seed) for seed in range(6))))
    ours, theirs = await books(owner, acme), await books(owner, stranger)
    assert ours["records"] + theirs["records"] == inserted
    assert ours["wallet"] == -ours["amounts"] == -ours["spent"]["o"][0]


async def test_each_organization_gets_its_own_posting(acme, stranger, call: Call, ingesting, owner) -> None:
    ours, theirs = call(acme, amount_nano=7), call(stranger, amount_nano=9)
    await ingest(ingesting, [ours, theirs])
    assert (await books(owner, acme))["wallet"] == -7
    assert (await books(owner, stranger))["wallet"] == -9
    assert (await stored(owner, ours.id))["posting_id"] != (await stored(owner, theirs.id))["posting_id"]


async def test_a_batch_that_cost_nothing_posts_nothing(
    acme: Organization, call: Call, ingesting, owner
) -> None:
    record = call(acme, amount_nano=0, currency="")
    await ingest(ingesting, [record])
    found = await books(owner, acme)
    assert (found["records"], found["postings"], found["spent"]["o"]) == (1, 0, (0, 1))
    assert (await stored(owner, record.id))["posting_id"] is None


async def test_a_charged_record_names_the_posting_that_charges_it(acme, call: Call, ingesting, owner) -> None:
    charged, free = call(acme), call(acme, amount_nano=0)
    await ingest(ingesting, [charged, free])
    posting_id = (await stored(owner, charged.id))["posting_id"]
    assert (await stored(owner, free.id))["posting_id"] is None

    rows = await owner.execute("SELECT * FROM billing_ledgerentry WHERE posting_id = %s", [posting_id])
    assert {row["account"]: row["amount_nano"] async for row in rows} == {"wallet": -100, "revenue": 100}


async def test_text_that_cannot_be_stored_is_made_storable(
    acme: Organization, call: Call, ingesting, owner
) -> None:
    record = call(
        acme,
        model="a\0b",
        task_id="x" * 500,
        client="\ud800",
        usage_flags=["f" * 99, "n\0"],
        attempts=[{"error\0": ["bad \0 byte", "literal \\u0000"]}],
        currency="CNY",
    )
    result = await ingest(ingesting, [record, call(acme)])
    assert result.inserted == 2
    row = await stored(owner, record.id)
    assert (row["model"], row["task_id"], row["client"]) == ("ab", "x" * 200, "?")
    assert row["usage_flags"] == ["f" * 48, "n"]
    assert row["attempts"] == [{"error": ["bad  byte", "literal \\u0000"]}]


async def test_a_count_below_zero_is_stored_as_none_and_flagged(
    acme: Organization, call: Call, ingesting, owner
) -> None:
    record = call(acme, output_tokens=-5, uncached_input_tokens=3, usage_flags=["x"])
    await ingest(ingesting, [record])
    row = await stored(owner, record.id)
    assert (row["output_tokens"], row["uncached_input_tokens"]) == (0, 3)
    assert row["usage_flags"] == ["x", "negative_count"]


BROKEN = [
    ({"id": "not-an-id"}, "UUIDv7"),
    ({"id": "c0ffee00-0000-4000-8000-000000000000"}, "UUIDv7"),
    ({"amount_nano": -1}, "usage_amount_not_negative"),
    ({"amount_nano": 2**63}, "out of range"),
    ({"currency": "USD"}, "does not balance"),
    ({"currency": ""}, "does not balance"),
    ({"organization_id": 987654321}, "foreign key"),
    ({"http_status": 99999}, "out of range"),
]


@pytest.mark.parametrize("fault", BROKEN, ids=str)
async def test_a_broken_record_is_put_aside_and_blocks_no_other(
    acme, call: Call, ingesting, owner, fault
) -> None:
    given, reason = fault
    good = [call(acme) for _ in range(9)]
    bad = msgspec.structs.replace(good[0], **{"id": call(acme).id, **given})
    result = await ingest(ingesting, [*good[:4], bad, *good[4:]])
    assert result.inserted == 9
    assert [rejected.record for rejected in result.rejected] == [bad]
    assert reason in result.rejected[0].reason
    assert (await books(owner, acme))["wallet"] == -900


async def test_a_batch_without_faults_is_one_posting_per_statement(
    acme, call: Call, ingesting, owner, monkeypatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 10)
    result = await ingest(ingesting, [call(acme) for _ in range(25)])
    assert result.inserted == 25
    assert (await books(owner, acme))["postings"] == 3


async def test_a_lost_connection_is_raised_and_the_batch_may_come_again(acme, call: Call, connect) -> None:
    lost, batch = await connect(), [call(acme), call(acme)]
    with socket.socket(fileno=os.dup(lost.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
    with pytest.raises(psycopg.OperationalError):
        await ingest(lost, batch)
    assert (await ingest(await connect(), batch)).inserted == 2


async def test_an_old_record_finds_a_partition(acme: Organization, ingesting, owner) -> None:
    record = CallRecord(id="01890000-0000-7000-8000-000000000001", organization_id=acme.pk, key_id=1)
    await ingest(ingesting, [record])
    assert isinstance((await stored(owner, record.id))["created_at"], datetime)
