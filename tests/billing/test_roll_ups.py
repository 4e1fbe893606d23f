import random
from datetime import UTC, datetime

import psycopg
import pytest

from accounts.models import Organization
from billing.ingest import ingest
from billing.roll_ups import NO_TOKEN, NOT_KEPT, ttft_percentile


async def hours(owner: psycopg.AsyncConnection, member_id: int) -> list[dict[str, object]]:
    found = await owner.execute(
        "SELECT * FROM billing_usagehour WHERE member_id = %s ORDER BY model, ttft_class", [member_id]
    )
    return await found.fetchall()


async def test_ingestion_keeps_the_sums_of_each_hour_once_for_all_and_once_for_a_member(
    acme: Organization, call, connect
) -> None:
    batch = [
        call(
            acme, member_id=7, ttft_ms=700.0, uncached_input_tokens=10, cached_input_tokens=4, output_tokens=2
        ),
        call(acme, member_id=7, ttft_ms=710.0, status="client_gone"),
        call(acme, ttft_ms=None, status="refused", amount_nano=0),
    ]
    ingesting, owner = await connect("relay_ingest"), await connect("relay_owner")
    await ingest(ingesting, batch)
    await ingest(ingesting, batch)

    names = ("ttft_class", "calls", "errors", "input_tokens", "cached_tokens", "output_tokens", "amount_nano")
    assert [tuple(row[name] for name in names) for row in await hours(owner, 0)] == [
        (NO_TOKEN, 1, 1, 0, 0, 0, 0),
        (28, 2, 0, 14, 4, 2, 200),
    ]
    (of_member,) = await hours(owner, 7)
    assert tuple(of_member[name] for name in names) == (NOT_KEPT, 2, 0, 14, 4, 2, 200)
    hour = of_member["hour"]
    assert isinstance(hour, datetime)
    assert (hour.astimezone(UTC).minute, hour.microsecond) == (0, 0)


async def test_an_absurd_report_makes_no_sum_that_cannot_be_kept(acme: Organization, call, connect) -> None:
    most = 2**63 - 1
    ingesting, owner = await connect("relay_ingest"), await connect("relay_owner")
    absurd = [
        call(acme, output_tokens=most, uncached_input_tokens=most, cached_input_tokens=most) for _ in range(3)
    ]

    assert (await ingest(ingesting, absurd)).inserted == 3
    (row,) = await hours(owner, 0)
    assert row["output_tokens"] == 3 * 10**12


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_percentile_of_classes_is_close_to_the_exact_one(share: float) -> None:
    rng = random.Random(5)
    times = sorted(rng.lognormvariate(6, 0.8) for _ in range(20_000))
    classes: dict[int, int] = {NO_TOKEN: 5_000, NOT_KEPT: 9}
    for ms in times:
        number = next(n for n in range(80) if ms < 10 ** ((n + 1) / 10))
        classes[number] = classes.get(number, 0) + 1

    assert ttft_percentile(classes, share) == pytest.approx(times[int(share * len(times))], rel=0.05)


def test_without_a_token_there_is_no_percentile() -> None:
    assert ttft_percentile({NO_TOKEN: 3}, 0.5) is None
    assert ttft_percentile({}, 0.5) is None
