"""Bringing the database to what a file declares, on PostgreSQL: upstreams, models, prices, organizations."""

import io

import pytest
from django.conf import settings as site_settings
from django.core.management import call_command

from accounts.keys import fingerprint
from accounts.models import Organization, User
from billing.models import Price
from relay.models import Change, Model, Route, Upstream
from relay.services.upstreams import terms_of
from tests.gateway.declared_sites import FILE, KEY, Site, key_named, wallet

pytestmark = pytest.mark.django_db


def test_it_makes_what_is_declared(site: Site) -> None:
    lines = site.apply(FILE)
    assert [line for line in lines if not line.startswith("key ")] == [
        "+ upstream kimi-a",
        "+ model kimi-k2",
        "~ model kimi-k2: + route to kimi-a as kimi-k2-0905",
        f"~ price of kimi-k2, version {Price.objects.get().pk}: currency CNY, input 4, output 16, discount 0.85",
        "+ organization acme",
        "+ opening credit of acme: 100 CNY",
        "+ member ann@acme.example of acme (owner)",
        "+ key ci of acme",
        "+ key laptop of acme",
    ]
    assert terms_of(Upstream.objects.get()).credential == "sk-kimi-secret"
    route = Route.objects.get()
    assert (route.model.name, route.upstream.name, route.upstream_model) == (
        "kimi-k2",
        "kimi-a",
        "kimi-k2-0905",
    )
    acme = Organization.objects.get(name="acme")
    assert (acme.title, acme.currency, acme.rpm) == ("Acme Ltd", "CNY", 100)
    assert wallet("acme") == 100 * 10**9
    ci = key_named("ci")
    assert bytes(ci.fingerprint) == fingerprint(KEY.encode(), site_settings.KEY_PEPPERS[0])
    assert (ci.member.user.email, ci.allowed_models, ci.scopes, ci.rpm) == (
        "ann@acme.example",
        ["kimi-k2"],
        ["call"],
        600,
    )
    assert User.objects.get(email="ann@acme.example").check_password("pa55word")


def test_a_second_time_there_is_nothing_to_change(site: Site) -> None:
    site.apply(FILE)
    changes = Change.objects.count()
    assert site.apply(FILE) == ["nothing to change"]
    assert site.apply(FILE, prune=True) == ["nothing to change"]
    assert Change.objects.count() == changes


def test_nothing_secret_is_printed(site: Site) -> None:
    shown = "\n".join(site.apply(FILE))
    shown += "\n".join(site.apply(FILE.replace("sk-kimi-secret", "sk-kimi-rotated")))
    for secret in (KEY, "sk-kimi-secret", "sk-kimi-rotated", "pa55word"):
        assert secret not in shown


def test_a_dry_run_shows_the_difference_and_writes_nothing(site: Site) -> None:
    lines = site.apply(FILE, dry_run=True)
    assert "+ organization acme" in lines
    assert lines[-1] == "dry run: nothing was written"
    assert not any(line.startswith("key ") for line in lines)
    assert not Organization.objects.exists() and not Upstream.objects.exists() and not Price.objects.exists()
    site.apply(FILE)
    site.apply(FILE.replace("Acme Ltd", "Acme Inc"), dry_run=True)
    assert Organization.objects.get().title == "Acme Ltd"


def test_an_upstreams_change_names_the_fields_and_not_the_values(site: Site) -> None:
    site.apply(FILE)
    sealed = bytes(Upstream.objects.get().credential_sealed)
    changed = FILE.replace("sk-kimi-secret", "sk-new").replace(":9100/v1", ":9200/v1")
    assert site.apply(changed) == ["~ upstream kimi-a: base_url, credential"]
    upstream = Upstream.objects.get()
    assert terms_of(upstream).credential == "sk-new"
    assert site.apply(changed.replace(":9200", ":9300")) == ["~ upstream kimi-a: base_url"]
    assert bytes(Upstream.objects.get().credential_sealed) == bytes(upstream.credential_sealed) != sealed


def test_a_price_gets_a_new_version_only_when_it_changes(site: Site) -> None:
    site.apply(FILE)
    first = Price.objects.get()
    site.apply(FILE.replace('"4.00"', '"4"').replace("moonshot-auto", "moonshot-other"))
    assert Price.objects.get() == first
    lines = site.apply(FILE.replace('input: "4.00"', 'input: "5.00", cached_input: "1"'))
    newest = Price.objects.order_by("-pk")[0]
    assert f"~ price of kimi-k2, version {newest.pk}: input 4 -> 5, cached_input none -> 1" in lines
    assert (newest.input, first.input, Price.objects.count()) == (5, 4, 2)
    site.apply(FILE)
    assert Price.objects.count() == 3


def test_routes_are_exactly_those_of_the_model(site: Site) -> None:
    site.apply(FILE)
    moved = FILE.replace(
        "upstream_model: kimi-k2-0905", "upstream_model: kimi-k2-1001, priority: 2, weight: 3"
    )
    assert site.apply(moved) == [
        "~ model kimi-k2: - route to kimi-a as kimi-k2-0905",
        "~ model kimi-k2: + route to kimi-a as kimi-k2-1001",
    ]
    assert list(Route.objects.values_list("upstream_model", "priority", "weight")) == [("kimi-k2-1001", 2, 3)]


def test_several_credentials_share_the_routes(site: Site) -> None:
    site.apply(FILE.replace("credential: sk-kimi-secret", "credentials: [sk-one, sk-two]"))
    assert sorted(Route.objects.values_list("upstream__name", flat=True)) == ["kimi-a-1", "kimi-a-2"]


def test_a_route_may_lead_to_an_upstream_of_an_earlier_file(site: Site) -> None:
    site.apply(FILE)
    rest = (
        "models:\n  - name: b\n    price: {currency: CNY, input: '1', output: '1'}\n"
        "    routes: [{upstream: kimi-a}]\n"
    )
    site.apply(rest)
    assert Route.objects.get(model__name="b").upstream_model == "b"
    assert "models[0].routes[0].upstream: there is no upstream 'nobody'" in site.refuse(
        rest.replace("kimi-a", "nobody")
    )


def test_an_alias_can_move_to_another_model_in_one_file(site: Site) -> None:
    site.apply(FILE)
    swapped = FILE.replace("    aliases: [moonshot-auto]\n", "").replace(
        "organizations:",
        "  - name: a-new-one\n    aliases: [moonshot-auto]\n"
        "    price: {currency: CNY, input: '1', output: '1'}\norganizations:",
    )
    site.apply(swapped)
    assert Model.objects.get(name="kimi-k2").aliases == []
    assert Model.objects.get(name="a-new-one").aliases == ["moonshot-auto"]
    assert site.apply(swapped) == ["nothing to change"]


def test_a_name_of_a_model_that_the_file_does_not_name_is_refused_at_its_line(site: Site) -> None:
    site.apply(FILE)
    shown = site.refuse(
        "models:\n  - name: moonshot-auto\n    price: {currency: CNY, input: '1', output: '1'}\n"
    )
    assert "site.yaml:2: models[0].name: moonshot-auto is a name of kimi-k2 already." in shown
    assert not Model.objects.filter(name="moonshot-auto").exists()


def test_one_error_keeps_everything_out(site: Site) -> None:
    shown = site.refuse(
        FILE.replace("upstream: kimi-a,", "upstream: kimi-b,").replace("member: ann@", "member: bob@")
    )
    assert "models[0].routes[0].upstream: there is no upstream 'kimi-b'" in shown
    assert "organizations[0].keys[0].member: bob@acme.example is not a member of acme" in shown
    assert not Organization.objects.exists() and not Upstream.objects.exists()


def test_the_opening_credit_is_booked_once(site: Site) -> None:
    site.apply(FILE)
    lines = site.apply(FILE.replace('"100.00"', '"250"'))
    assert lines[0].startswith("note: ")
    assert "booked as 100 and stays so" in lines[0]
    assert wallet("acme") == 100 * 10**9


def test_a_balance_sets_the_billing_currency(site: Site) -> None:
    site.apply(FILE.replace('{CNY: "100.00"}', '{USD: "0"}'))
    assert Organization.objects.get().currency == "USD"
    assert wallet("acme") == 0
    site.apply(FILE.replace('{CNY: "100.00"}', '{EUR: "5"}'))
    assert Organization.objects.get().currency == "EUR"
    shown = site.refuse(FILE)
    assert "organizations[0].balance: The wallet is kept in EUR" in shown


def test_limits_come_and_go(site: Site) -> None:
    site.apply(FILE.replace("limits: {rpm: 100}", 'limits: {rpm: 7, concurrency: 3, budget: "1.5"}'))
    acme = Organization.objects.get()
    assert (acme.rpm, acme.concurrency, acme.budget_nano) == (7, 3, 1_500_000_000)
    assert site.apply(FILE.replace("    limits: {rpm: 100}\n", "")) == ["~ organization acme: limits"]
    acme.refresh_from_db()
    assert (acme.rpm, acme.concurrency, acme.budget_nano) == (None, None, None)


def test_a_file_that_is_not_there_is_an_error_of_one_line(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        call_command("apply", "no-such-file.yaml", stdout=io.StringIO())
    assert caught.value.code == 1
    assert capsys.readouterr().err == "no-such-file.yaml: cannot be read: No such file or directory\n"


def test_the_relay_hears_of_each_change_in_the_same_transaction(site: Site) -> None:
    site.apply(FILE)
    Change.objects.all().delete()
    site.apply(FILE.replace('"4.00"', '"5.00"').replace("rpm: 600", "rpm: 6").replace("Acme Ltd", "Acme"))
    kinds = set(Change.objects.values_list("kind", flat=True))
    assert kinds == {"price", "key", "organization"}
