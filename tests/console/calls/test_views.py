import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from accounts import scope
from accounts.permissions import SYSTEM
from accounts.services.keys import KeyTerms, create_key
from tests.console.cast import insert_many_calls

pytestmark = pytest.mark.django_db


def text_of(response) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", response.content.decode())))


def test_a_call_stands_in_the_list_with_its_figures(cast, signed_in):
    cast.call()

    row = text_of(signed_in("ann").get("/calls/"))

    assert "kimi-k2" in row
    assert "4,000 (3,000)" in row
    assert "700 ms" in row
    assert "2.00 s" in row
    assert "0.0087" in row


def test_an_employee_sees_calls_of_their_own_keys_only(cast, signed_in):
    cast.call(key="ci", model="not-for-erin")
    own = cast.call(key="laptop", model="erins-own")
    foreign = cast.call(key="ci")
    browser = signed_in("erin")

    page = text_of(browser.get("/calls/"))

    assert "erins-own" in page
    assert "not-for-erin" not in page
    assert browser.get(f"/calls/{own.id}/").status_code == 200
    assert browser.get(f"/calls/{foreign.id}/").status_code == 404


def test_somebody_elses_call_is_404_as_one_that_never_was(cast, signed_in):
    foreign = cast.call(key="bolt-ci")

    for name in ("ann", "erin", "fay"):
        assert signed_in(name).get(f"/calls/{foreign.id}/").status_code == 404
        assert signed_in(name).get(f"/calls/{uuid4()}/").status_code == 404


def test_upstream_names_are_for_operators(cast, signed_in):
    made = cast.call()

    for path in ("/calls/", f"/calls/{made.id}/"):
        assert "secret" not in signed_in("ann").get(path).content.decode()
        assert "secret-account" in signed_in("oli").get(path, {"organization": "acme"}).content.decode()


def test_pages_lead_on_to_older_calls_and_keep_the_filters(cast, signed_in):
    cast.calls(
        [{"created_at": datetime.now(UTC) - timedelta(minutes=n), "task_id": "t"} for n in range(1, 62)]
    )
    browser = signed_in("ann")

    first = browser.get("/calls/", {"task_id": "t", "range": "24h"})
    second = browser.get(first.context["next_url"])

    assert len(first.context["page"].calls) == 50
    assert "task_id=t" in first.context["next_url"]
    assert len(second.context["page"].calls) == 11
    assert second.context["next_url"] == ""
    assert not {call.id for call in first.context["page"].calls} & {
        call.id for call in second.context["page"].calls
    }


def test_the_range_bounds_the_list_and_days_are_read_in_the_organizations_zone(cast, signed_in):
    old = cast.call(created_at=datetime(2026, 1, 1, 15, 59, tzinfo=UTC))
    cast.call(created_at=datetime(2026, 1, 1, 16, 1, tzinfo=UTC))
    browser = signed_in("ann")

    def found(**words):
        return [call.id for call in browser.get("/calls/", words).context["page"].calls]

    assert found() == []
    assert found(range="30d") == []
    assert len(found(range="all")) == 2
    assert found(**{"from": "2026-01-01T00:00", "to": "2026-01-02T00:00"}) == [old.id]


def test_a_filter_that_cannot_be_read_is_told_beside_its_field(cast, signed_in):
    page = signed_in("ann").get("/calls/", {"min_ttft_ms": "soon"})

    assert page.status_code == 200
    assert page.context["page"].calls == []
    assert 'id="filter-min_ttft_ms-error"' in page.content.decode()
    assert 'aria-describedby="filter-min_ttft_ms-error"' in page.content.decode()


def test_a_changed_cursor_shows_no_call(cast, signed_in):
    cast.call()

    page = signed_in("ann").get("/calls/", {"cursor": "tampered"})

    assert page.context["page"].calls == []
    assert "does not exist" in text_of(page)


def test_an_empty_list_says_what_to_do_next(cast, signed_in):
    browser = signed_in("ann")

    assert "Show all calls" in text_of(browser.get("/calls/"))
    assert "Make the first call" in text_of(browser.get("/calls/", {"range": "all"}))
    cast.call()
    assert "Clear the filters" in text_of(browser.get("/calls/", {"model": "no-such"}))


def test_names_of_an_organization_cannot_be_searched_from_another(cast, signed_in):
    cast.call(key="bolt-ci")

    assert signed_in("ann").get("/calls/", {"key": "bolt-ci", "range": "all"}).context["page"].calls == []


def test_the_list_costs_the_same_number_of_queries_however_long_it_is(cast, signed_in):
    with scope.organization(cast.acme.pk):
        for n in range(5):
            made = create_key(acting=SYSTEM, organization=cast.acme, name=f"k{n}", terms=KeyTerms())
            cast.keys[made.key.name] = made.key
    cast.call()
    browser = signed_in("ann")
    browser.get("/calls/")
    with CaptureQueriesContext(connection) as few:
        browser.get("/calls/")
    cast.calls([{"key": key} for key in ("ci", "laptop", "manager", "k0", "k1", "k2", "k3", "k4")] * 5)

    with CaptureQueriesContext(connection) as many:
        browser.get("/calls/")

    assert len(many) == len(few)
    assert not any("count(" in query["sql"].lower() or " OFFSET " in query["sql"] for query in many)


def test_the_page_of_a_call_explains_amount_time_and_ending(cast, signed_in):
    made = cast.call(stages={"auth": 1.0, "prefill": 699.0, "decode": 1300.0})

    page = text_of(signed_in("ann").get(f"/calls/{made.id}/"))

    assert "0.00867 CNY" in page.replace("\xa0", " ")
    assert f"Price version {cast.price.pk} of kimi-k2" in page
    assert "× 0.85" in page
    assert "Upstream reads the prompt" in page
    assert "The answer was delivered whole. The model came to its end." in page
    assert str(made.id) in page
    assert "75.0 % from the cache" in page


def test_times_are_in_the_organizations_zone_with_utc_for_machines(cast, signed_in):
    made = cast.call(created_at=datetime(2026, 11, 30, 18, 30, 1, 5000, tzinfo=UTC))

    page = signed_in("ann").get(f"/calls/{made.id}/").content.decode()

    assert "2026-12-01 02:30:01.005 UTC+08:00" in page
    assert 'datetime="2026-11-30T18:30:01.005000Z"' in page


def test_a_refused_call_has_a_page_too(cast, signed_in):
    made = cast.call(
        status="refused",
        http_status=429,
        error_kind="budget_spent",
        end_reason="",
        attempts=[],
        stages={},
        price_version=None,
        amount_nano=0,
        ttft_ms=None,
        ttfb_ms=None,
        uncached_input_tokens=0,
        cached_input_tokens=0,
        output_tokens=0,
        reasoning_tokens=0,
    )

    page = text_of(signed_in("ann").get(f"/calls/{made.id}/"))

    assert "A budget does not cover the most that the call could cost." in page
    assert "no token was sent" in page
    assert "No stage was timed" in page


def test_a_callers_texts_cannot_become_markup(cast, signed_in):
    made = cast.call(model="<script>alert(1)</script>", task_id='"><img src=x onerror=alert(1)>')

    for path in (f"/calls/{made.id}/", "/calls/"):
        page = signed_in("ann").get(path).content.decode()
        assert "<script>alert" not in page
        assert "<img src=x" not in page


def test_no_attribute_needs_an_inline_style(cast, signed_in):
    made = cast.call()

    for path in ("/", "/calls/", f"/calls/{made.id}/", "/keys/", "/keys/new/", "/money/"):
        page = signed_in("ann").get(path).content.decode()
        assert not re.search(r"\s(style|on[a-z]+)=", page), path
        assert (
            json.loads(re.search(r"content='({.*?})'", page).group(1))["allowEval"] is False
            if "htmx" in page
            else True
        )


def test_a_search_that_stopped_says_how_far_it_came_and_leads_on(cast, signed_in):
    insert_many_calls(cast, 8_000, apart="1 minute")
    moment = datetime.now(UTC) - timedelta(days=5)
    oldest = cast.call(stream=False, created_at=moment)
    browser = signed_in("ann")

    first = browser.get("/calls/", {"stream": "false"})
    assert first.context["page"].calls == []
    assert "Nothing found so far" in first.content.decode()
    assert escape(first.context["next_url"]) in first.content.decode()

    second = browser.get(first.context["next_url"])
    assert [call.id for call in second.context["page"].calls] == [oldest.id]


@pytest.mark.parametrize("word", ["member=ann@example.com", "min_total_ms=1", "error_kind=budget_spent"])
def test_every_filter_in_use_stands_in_the_form(cast, signed_in, word):
    name, value = word.split("=")
    page = signed_in("ann").get("/calls/", {name: value}).content.decode()

    assert re.search(rf'name="{name}" type="text" value="{value}"', page)
    assert '<details class="filters-more" open>' in page
    assert '<details class="filters-more">' in signed_in("ann").get("/calls/").content.decode()


def test_an_employee_is_offered_no_members(cast, signed_in):
    page = signed_in("erin").get("/calls/").content.decode()

    assert 'name="member"' not in page
    assert "ann@example.com" not in page
