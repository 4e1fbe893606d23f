from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection

from accounts import scope
from console.calls import queries
from console.calls.filters import CallFilters
from console.cursor import BadCursor
from console.gate import Sight
from tests.console.cast import insert_many_calls

pytestmark = pytest.mark.django_db
MOMENT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def walk(sight: Sight, size: int, filters: CallFilters | None = None) -> list:
    """All ids of a list, page after page."""
    ids, after = [], None
    while True:
        page = queries.list_calls(sight, filters or CallFilters(), after=after, size=size)
        ids += [call.id for call in page.calls]
        assert len(page.calls) <= size
        if page.next_cursor is None:
            return ids
        after = queries.read_cursor(page.next_cursor)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_pages_show_every_call_once_also_where_many_share_a_moment(cast, size):
    made = cast.calls([{"created_at": MOMENT}] * 5 + [{"created_at": MOMENT + timedelta(milliseconds=1)}] * 3)
    expected = [call.id for call in sorted(made, key=lambda call: (call.created_at, call.id), reverse=True)]

    with scope.organization(cast.acme.pk):
        assert walk(Sight(cast.acme.pk), size) == expected


def test_a_call_that_comes_in_between_does_not_shift_the_pages(cast):
    made = cast.calls([{"created_at": MOMENT + timedelta(seconds=n)} for n in range(4)])
    with scope.organization(cast.acme.pk):
        first = queries.list_calls(Sight(cast.acme.pk), CallFilters(), size=2)
    cast.call(created_at=MOMENT + timedelta(hours=1))
    with scope.organization(cast.acme.pk):
        after = queries.read_cursor(first.next_cursor)
        second = queries.list_calls(Sight(cast.acme.pk), CallFilters(), after=after, size=2)

    assert [call.id for call in second.calls] == [made[1].id, made[0].id]
    assert second.next_cursor is None


def test_sight_bounds_a_list(cast):
    own = cast.call(key="laptop")
    cast.call(key="ci")
    foreign = cast.call(key="bolt-ci")

    with scope.organization(cast.acme.pk):
        assert len(walk(Sight(cast.acme.pk), 10)) == 2
        assert walk(Sight(cast.acme.pk, member_id=cast.members["erin"].pk), 10) == [own.id]
        assert walk(Sight(cast.bolt.pk), 10) == []
        assert queries.find_call(Sight(cast.acme.pk), foreign.id) is None
    with scope.site("tests"):
        assert len(walk(Sight(None), 10)) == 3


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (CallFilters(model="deepseek-v4"), {"model"}),
        (CallFilters(key="laptop"), {"key"}),
        (CallFilters(member="ERIN@example.com"), {"key"}),
        (CallFilters(statuses=("refused", "interrupted")), {"status"}),
        (CallFilters(error_kind="budget_spent"), {"status"}),
        (CallFilters(task_id="t-1"), {"task"}),
        (CallFilters(min_ttft_ms=5000), {"slow"}),
        (CallFilters(min_total_ms=9000), {"slow"}),
        (CallFilters(stream=False), {"plain"}),
        (CallFilters(start=MOMENT, end=MOMENT + timedelta(seconds=1)), {"old"}),
        (CallFilters(model="deepseek-v4", stream=False), set()),
        (CallFilters(key="no-such-key"), set()),
    ],
)
def test_each_filter_lets_its_calls_through(cast, filters, found):
    made = {
        "model": cast.call(model="deepseek-v4"),
        "key": cast.call(key="laptop"),
        "status": cast.call(status="refused", error_kind="budget_spent", ttft_ms=None),
        "task": cast.call(task_id="t-1"),
        "slow": cast.call(ttft_ms=6000.0, total_ms=9000.0),
        "plain": cast.call(stream=False),
        "old": cast.call(created_at=MOMENT),
    }

    with scope.organization(cast.acme.pk):
        assert set(walk(Sight(cast.acme.pk), 10, filters)) == {made[name].id for name in found}


def test_a_key_is_found_by_its_prefix_and_a_member_by_id(cast):
    own = cast.call(key="laptop")
    cast.call(key="ci")

    with scope.organization(cast.acme.pk):
        assert walk(Sight(cast.acme.pk), 10, CallFilters(key=cast.keys["laptop"].prefix)) == [own.id]
        assert walk(Sight(cast.acme.pk), 10, CallFilters(member=str(cast.members["erin"].pk))) == [own.id]


def test_a_call_is_found_by_its_id_and_only_by_one_that_can_be_a_call(cast):
    made = cast.call()

    with scope.organization(cast.acme.pk):
        assert queries.find_call(Sight(cast.acme.pk), made.id).pk == (made.created_at, made.id)
        assert queries.find_call(Sight(cast.acme.pk), uuid4()) is None


def test_a_cursor_that_was_changed_is_refused(cast):
    cast.calls([{"created_at": MOMENT}] * 2)
    with scope.organization(cast.acme.pk):
        cursor = queries.list_calls(Sight(cast.acme.pk), CallFilters(), size=1).next_cursor

    for text in (cursor[:-1], "x" + cursor, cursor.replace(".", ""), "", "a.b", "é"):
        with pytest.raises(BadCursor):
            queries.read_cursor(text)


def test_names_are_read_once_for_a_whole_page(cast, django_assert_num_queries):
    calls = cast.calls([{"key": key} for key in ("ci", "laptop", "ci", "laptop", "manager")])

    with scope.organization(cast.acme.pk), django_assert_num_queries(3):
        names = queries.find_names(calls, organizations=True)

    assert names.keys[cast.keys["laptop"].pk] == "laptop"
    assert names.members[cast.members["erin"].pk] == "erin@example.com"
    assert names.organizations == {cast.acme.pk: "acme"}


@pytest.mark.parametrize("employee", [False, True])
@pytest.mark.parametrize("site", [False, True])
def test_a_page_of_a_long_log_is_read_from_the_index_without_sorting_the_log(cast, site, employee):
    insert_many_calls(cast, 12_000)
    member = cast.members["erin"].pk if employee else None
    sight = Sight(None if site else cast.acme.pk, member_id=None if site else member)
    with scope.site("tests") if site else scope.organization(cast.acme.pk):
        after = queries.read_cursor(queries.list_calls(sight, CallFilters(), size=50).next_cursor)
        with connection.execute_wrapper(explain := Explain()):
            queries.list_calls(sight, CallFilters(), after=after, size=50)

    (plan,) = explain.plans
    assert "Index Scan" in plan
    assert "Seq Scan" not in plan
    assert "Sort  " not in plan
    assert "Index Cond: (ROW(created_at, id)" in plan or "(created_at, id)" in plan


class Explain:
    """Keeps the plan of each query of the log that it sees."""

    def __init__(self) -> None:
        self.plans: list[str] = []

    def __call__(self, execute, sql, params, many, context):
        if "billing_usagerecord" in sql:
            with context["connection"].connection.cursor() as cursor:
                rows = cursor.execute(f"EXPLAIN (ANALYZE) {sql}", params)
                self.plans.append("\n".join(row[0] for row in rows))
        return execute(sql, params, many, context)
