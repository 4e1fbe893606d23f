from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from console.gate import Sight
from console.overview.queries import read_overview

pytestmark = pytest.mark.django_db


def test_figures_of_the_day_are_summed_in_all_by_hour_and_by_model(cast):
    now = datetime.now(UTC)
    cast.calls(
        [
            {"created_at": now - timedelta(minutes=1), "ttft_ms": 100.0},
            {"created_at": now - timedelta(minutes=2), "ttft_ms": 300.0, "model": "deepseek-v4"},
            {"created_at": now - timedelta(minutes=3), "status": "client_gone", "ttft_ms": None},
            {
                "created_at": now - timedelta(minutes=4),
                "status": "refused",
                "ttft_ms": None,
                "amount_nano": 0,
            },
            {"created_at": now - timedelta(hours=30)},
            {"created_at": now - timedelta(minutes=1), "key": "bolt-ci"},
        ]
    )

    from accounts import scope

    with scope.organization(cast.acme.pk):
        day = read_overview(Sight(cast.acme.pk), now)

    total = day.total
    assert (total.calls, total.errors, total.amount_nano) == (4, 1, 3 * 8_670_000)
    assert (total.input_tokens, total.cached_tokens, total.output_tokens) == (16_000, 12_000, 800)
    assert (total.ttft_p50_ms, total.ttft_p95_ms) == (200, 290)
    assert (total.cache_hit_ratio, total.error_share) == (0.75, 0.25)
    assert len(day.hours) == 24
    assert sum(hour.calls for hour in day.hours) == 4
    assert [(model, figures.calls) for model, figures in day.models] == [("kimi-k2", 3), ("deepseek-v4", 1)]


def test_an_employees_overview_is_about_their_own_calls(cast, signed_in):
    cast.call(key="ci")
    cast.call(key="laptop")

    assert signed_in("erin").get("/").context["day"].total.calls == 1
    assert signed_in("ann").get("/").context["day"].total.calls == 2


def test_without_calls_the_page_shows_how_to_make_the_first_one(cast, signed_in, settings):
    page = signed_in("ann").get("/").content.decode()

    assert f"curl {settings.PUBLIC_URL}/v1/chat/completions" in page
    assert "$YIZHAN_KEY" in page
    assert "deepseek-v4" in page


def test_only_protocols_that_the_relay_speaks_have_a_base_address(cast, signed_in, settings):
    response = signed_in("ann").get("/")

    assert response.context["addresses"] == [("OpenAI", f"{settings.PUBLIC_URL}/v1")]
    assert "Anthropic" not in response.content.decode()
    assert "Gemini" not in response.content.decode()


def test_the_overview_reads_the_log_once(cast, signed_in, django_assert_max_num_queries):
    cast.calls([{}] * 30)
    browser = signed_in("ann")
    browser.get("/")

    with django_assert_max_num_queries(12) as queries:
        browser.get("/")

    assert sum("billing_usagerecord" in query["sql"] for query in queries) == 1


def test_a_program_that_knocks_gets_a_short_word(db):
    assert Client().get("/").content == b"Yizhan\n"
    assert Client().head("/").status_code == 200
