"""Price versions of a file applied, tried and refused: a version is used up only by a price that changed."""

import pytest
from django.db import connection

from billing.models import Price
from billing.prices import prices_in_force
from tests.gateway.declared_sites import FILE, KEY, OTHER_KEY, Site

pytestmark = pytest.mark.django_db

TWO_MODELS = FILE.replace(
    "organizations:",
    """  - name: deepseek-v4
    price: {currency: CNY, input: "7.00", output: "9.00"}
    routes:
      - {upstream: kimi-a, upstream_model: deepseek-v4}
organizations:""",
)


def everything_in_the_database() -> dict[str, list[str]]:
    """All rows of all tables, as text, and what identifies the next price."""
    with connection.cursor() as cursor:
        found = {}
        for table in sorted(connection.introspection.table_names(cursor)):
            cursor.execute(f'SELECT t::text FROM "{table}" AS t ORDER BY 1')
            found[table] = [row[0] for row in cursor.fetchall()]
        cursor.execute("SELECT billing_next_price_version()")
        found["next price"] = [str(cursor.fetchone()[0])]
    return found


def test_a_dry_run_leaves_no_trace_at_all(site: Site) -> None:
    site.apply(FILE)
    before = everything_in_the_database()
    changed = FILE.replace('input: "4.00"', 'input: "5.00"').replace("acme", "bolt").replace(KEY, OTHER_KEY)

    for _again in range(3):
        lines = site.apply(changed, dry_run=True)
        assert any(line.startswith("~ price of kimi-k2, version 2: input 4 -> 5") for line in lines)

    assert everything_in_the_database() == before
    assert Price.objects.get().pk == 1
    assert any("version 2:" in line for line in site.apply(changed))


def test_a_file_that_is_refused_uses_up_no_price_version(site: Site) -> None:
    site.apply(FILE)
    with pytest.raises(SystemExit):
        site.apply(FILE.replace('input: "4.00"', 'input: "5.00"').replace("kimi-a, up", "kimi-x, up"))

    assert any(", version 2:" in line for line in site.apply(FILE.replace('input: "4.00"', 'input: "5.00"')))


def test_a_price_keeps_its_version_when_another_one_changes(site: Site) -> None:
    site.apply(TWO_MODELS)
    before = {price.model_name: price.pk for price in Price.objects.all()}
    site.apply(TWO_MODELS.replace('input: "7.00"', 'input: "8.00"').replace("title: Acme Ltd", "title: Acme"))

    now = {price.model_name: price.pk for price in prices_in_force()}
    assert now == {"kimi-k2": before["kimi-k2"], "deepseek-v4": 3}
