import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.db import connection

from accounts import scope
from console.gate import Sight
from console.overview import queries
from console.overview.queries import MOST_READ, read_overview
from tests.console.cast import insert_many_calls

pytestmark = pytest.mark.django_db


class Rows:
    """How many rows of the log, and of its hours, a page reads."""

    def __init__(self) -> None:
        self.read = {"billing_usagerecord": 0, "billing_usagehour": 0}

    def __call__(self, execute, sql, params, many, context):
        for table in self.read:
            if f"FROM {table}" in sql:
                with context["connection"].connection.cursor() as cursor:
                    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
                    found = cursor.fetchone()[0]
                (plan,) = json.loads(found) if isinstance(found, str) else found
                self.read[table] += scanned(plan["Plan"])
        return execute(sql, params, many, context)


def scanned(node: dict) -> int:
    own = (
        node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        if node["Node Type"].endswith("Scan")
        else 0
    )
    inner = sum(scanned(child) for child in node.get("Plans", []))
    return round(own * node["Actual Loops"]) + inner if node["Node Type"] != "Subquery Scan" else inner


def without_medians(figures: queries.Figures) -> queries.Figures:
    return replace(figures, ttft_p50_ms=None, ttft_p95_ms=None)


@pytest.mark.parametrize("employee", [False, True])
def test_a_long_day_is_summed_from_its_hours_as_exactly_as_call_by_call(cast, monkeypatch, employee):
    insert_many_calls(
        cast, 30_000, more={"status": "CASE WHEN n %% 11 = 0 THEN 'upstream_error' ELSE 'ok' END"}
    )
    sight = Sight(cast.acme.pk, member_id=cast.members["erin"].pk if employee else None)
    now = datetime.now(UTC)
    with scope.organization(cast.acme.pk):
        with connection.execute_wrapper(rows := Rows()):
            day = read_overview(sight, now)
        monkeypatch.setattr(queries, "MOST_READ", 10**6)
        exact = read_overview(sight, now)

    assert exact.total.calls > MOST_READ
    assert without_medians(day.total) == without_medians(exact.total)
    assert [without_medians(hour) for hour in day.hours] == [without_medians(hour) for hour in exact.hours]
    assert [(name, without_medians(f)) for name, f in day.models] == [
        (name, without_medians(f)) for name, f in exact.models
    ]
    assert day.total.ttft_p50_ms == pytest.approx(exact.total.ttft_p50_ms, rel=0.08)
    assert day.total.ttft_p95_ms == pytest.approx(exact.total.ttft_p95_ms, rel=0.08)
    assert rows.read["billing_usagerecord"] <= MOST_READ * 1.1
    assert rows.read["billing_usagehour"] < 3_000


def test_a_short_day_is_exact_in_everything_and_reads_no_hours(cast):
    cast.calls([{"ttft_ms": float(ms)} for ms in (100, 200, 700)])
    with scope.organization(cast.acme.pk), connection.execute_wrapper(rows := Rows()):
        day = read_overview(Sight(cast.acme.pk), datetime.now(UTC))

    assert (day.total.calls, day.total.ttft_p50_ms) == (3, 200)
    assert rows.read["billing_usagehour"] == 0
