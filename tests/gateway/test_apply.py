"""Bringing the database to what a file declares, on PostgreSQL."""

import io
from pathlib import Path

import pytest
from django.conf import settings as site_settings
from django.core.management import call_command
from django.db import connection

from accounts import scope
from accounts.keys import fingerprint
from accounts.models import Key, Member, Organization, User
from accounts.permissions import SYSTEM
from accounts.services.keys import revoke_key
from billing.models import Account, LedgerEntry, Price
from billing.prices import prices_in_force
from relay.models import Change, Model, Route, Upstream
from relay.services.upstreams import terms_of

pytestmark = pytest.mark.django_db

KEY = "sk-yz-test-0000000000000000000000000000000000000000"
OTHER_KEY = "sk-yz-test-1111111111111111111111111111111111111111"
FILE = """
upstreams:
  - name: kimi-a
    protocol: openai
    base_url: http://127.0.0.1:9100/v1
    credential: sk-kimi-secret
    allow_private: true
models:
  - name: kimi-k2
    aliases: [moonshot-auto]
    price: {currency: CNY, input: "4.00", output: "16.00", discount: "0.85"}
    routes:
      - {upstream: kimi-a, upstream_model: kimi-k2-0905}
organizations:
  - name: acme
    title: Acme Ltd
    balance: {CNY: "100.00"}
    limits: {rpm: 100}
    members:
      - {email: ann@acme.example, role: owner, password: pa55word}
    keys:
      - {name: ci, value: VALUE, member: ann@acme.example, models: [kimi-k2], limits: {rpm: 600}}
      - {name: laptop}
""".replace("VALUE", KEY)
TWO_MODELS = FILE.replace(
    "organizations:",
    """  - name: deepseek-v4
    price: {currency: CNY, input: "7.00", output: "9.00"}
    routes:
      - {upstream: kimi-a, upstream_model: deepseek-v4}
organizations:""",
)


class Site:
    """Applies files and says what was printed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "site.yaml"

    def apply(self, text: str, **options: bool) -> list[str]:
        self.path.write_text(text)
        out = io.StringIO()
        call_command("apply", str(self.path), stdout=out, stderr=io.StringIO(), **options)
        return out.getvalue().splitlines()

    def refuse(self, text: str) -> str:
        self.path.write_text(text)
        err = io.StringIO()
        with pytest.raises(SystemExit) as caught:
            call_command("apply", str(self.path), stdout=io.StringIO(), stderr=err)
        assert caught.value.code == 1
        return err.getvalue()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(autouse=True)
def everything(db: None, settings):
    """Tests look at all organizations at once."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick
    with scope.site("test"):
        yield


def key_named(name: str) -> Key:
    return Key.objects.get(name=name, revoked_at=None)


def wallet(organization: str) -> int:
    entries = LedgerEntry.objects.filter(organization__name=organization, account=Account.WALLET)
    return sum(entry.amount_nano for entry in entries)


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


def test_a_generated_key_is_printed_once_and_kept_as_a_fingerprint(site: Site) -> None:
    shown = [line for line in site.apply(FILE) if line.startswith("key laptop of acme, shown this once: ")]
    clear = shown[0].rpartition(" ")[2]
    assert clear.startswith("sk-yz-")
    assert bytes(key_named("laptop").fingerprint) == fingerprint(clear.encode(), site_settings.KEY_PEPPERS[0])
    assert clear not in "\n".join(site.apply(FILE))


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


def test_a_password_is_set_for_new_people_only(site: Site) -> None:
    site.apply(FILE)
    ann = User.objects.get()
    ann.set_password("her own")
    ann.save()
    assert site.apply(FILE) == ["nothing to change"]
    ann.refresh_from_db()
    assert ann.check_password("her own")


def test_a_role_changes(site: Site) -> None:
    site.apply(FILE)
    assert site.apply(FILE.replace("role: owner", "role: finance")) == [
        "~ member ann@acme.example of acme: finance"
    ]


def test_a_keys_terms_change_and_its_end_stays_as_a_person_set_it(site: Site) -> None:
    from django.utils import timezone

    site.apply(FILE)
    end = timezone.now()
    Key.objects.filter(name="ci").update(expires_at=end)
    changed = FILE.replace("models: [kimi-k2], limits: {rpm: 600}", "scopes: [call, operate]")
    assert site.apply(changed) == ["~ key ci of acme: allowed_models, limits, scopes"]
    ci = key_named("ci")
    assert (ci.allowed_models, ci.rpm, ci.scopes, ci.expires_at) == (None, None, ["call", "operate"], end)


def test_another_value_replaces_a_fixed_key(site: Site) -> None:
    site.apply(FILE)
    old = key_named("ci")
    lines = site.apply(FILE.replace(KEY, OTHER_KEY))
    assert lines == ["- key ci of acme (revoked: it has another value now)", "+ key ci of acme"]
    old.refresh_from_db()
    assert old.revoked_at is not None
    assert key_named("ci").pk != old.pk


def test_a_fixed_key_keeps_its_row_when_its_name_changes(site: Site) -> None:
    site.apply(FILE)
    before = key_named("ci")
    assert site.apply(FILE.replace("name: ci", "name: build")) == ["~ key build of acme: name"]
    assert key_named("build").pk == before.pk


def test_two_fixed_keys_can_swap_their_names(site: Site) -> None:
    two = FILE.replace("      - {name: laptop}", f"      - {{name: laptop, value: {OTHER_KEY}}}")
    site.apply(two)
    site.apply(
        two.replace("name: ci", "name: x")
        .replace("name: laptop", "name: ci")
        .replace("name: x", "name: laptop")
    )
    assert bytes(key_named("laptop").fingerprint) == fingerprint(KEY.encode(), site_settings.KEY_PEPPERS[0])
    assert bytes(key_named("ci").fingerprint) == fingerprint(OTHER_KEY.encode(), site_settings.KEY_PEPPERS[0])


def test_another_organizations_key_value_is_refused_without_showing_it(site: Site) -> None:
    site.apply(FILE)
    shown = site.refuse(f"organizations:\n  - name: other\n    keys: [{{name: a, value: {KEY}}}]\n")
    assert "site.yaml:3: organizations[0].keys[0].value" in shown
    assert KEY not in shown


def test_a_key_that_a_person_revoked_stays_dead(site: Site) -> None:
    site.apply(FILE)
    revoke_key(acting=SYSTEM, key=key_named("ci"), reason="leaked")
    lines = site.apply(FILE)
    assert "was revoked and stays so" in lines[0]
    assert not Key.objects.filter(name="ci", revoked_at=None).exists()


def test_a_generated_key_that_a_person_revoked_is_not_made_anew(site: Site) -> None:
    site.apply(FILE)
    revoke_key(acting=SYSTEM, key=key_named("laptop"), reason="lost")

    for _again in range(2):
        lines = site.apply(FILE)
        assert "the key laptop was revoked and stays so" in lines[0]
        assert lines[1:] == ["nothing to change"]
    assert not Key.objects.filter(name="laptop", revoked_at=None).exists()
    assert "+ key desktop of acme" in site.apply(FILE.replace("name: laptop", "name: desktop"))


def test_a_generated_key_that_was_pruned_is_made_anew(site: Site) -> None:
    site.apply(FILE)
    site.apply(FILE.replace("      - {name: laptop}\n", ""), prune=True)

    assert "+ key laptop of acme" in site.apply(FILE)


def test_a_key_for_a_model_that_is_not_there_gets_a_note(site: Site) -> None:
    lines = site.apply(FILE.replace("models: [kimi-k2]", "models: [kimi-k3, moonshot-auto]"))
    notes = [line for line in lines if line.startswith("note: ")]
    assert "there is no model 'kimi-k3'" in notes[0]
    assert "'moonshot-auto' is an alias: name the model itself, 'kimi-k2'" in notes[1]


def test_without_prune_nothing_that_is_not_named_is_touched(site: Site) -> None:
    site.apply(FILE)
    assert site.apply("upstreams: []\nmodels: []\norganizations: []\n") == ["nothing to change"]
    assert key_named("ci").organization.enabled


def test_prune_revokes_and_switches_off_what_is_not_named(site: Site) -> None:
    site.apply(FILE)
    less = FILE.replace("      - {name: laptop}\n", "")
    assert site.apply(less, prune=True) == ["- key laptop of acme (revoked)"]
    nobody = less.replace("member: ann@acme.example, ", "").replace(
        "      - {email: ann@acme.example, role: owner, password: pa55word}\n",
        "      - {email: bob@acme.example, role: owner}\n",
    )
    assert "- member ann@acme.example of acme (switched off)" in site.apply(nobody, prune=True)
    assert not Member.objects.filter(user__email="ann@acme.example").exists()
    assert Member.with_disabled.filter(user__email="ann@acme.example").exists()
    assert site.apply("upstreams: []\nmodels: []\norganizations: []\n", prune=True) == [
        "- upstream kimi-a (switched off)",
        "- model kimi-k2 (switched off)",
        "- key ci of acme (revoked)",
        "- organization acme (switched off)",
    ]
    assert not Upstream.objects.get().enabled
    assert not Model.objects.get().enabled


def test_what_was_pruned_comes_back_when_it_is_named_again(site: Site) -> None:
    site.apply(FILE)
    ann = Member.objects.get()
    ci = key_named("ci")
    site.apply("upstreams: []\nmodels: []\norganizations: []\n", prune=True)
    lines = site.apply(FILE)
    assert "~ upstream kimi-a: enabled" in lines
    assert "~ model kimi-k2: enabled" in lines
    assert "~ organization acme: switched on" in lines
    assert "~ key ci of acme: restored" in lines
    assert (key_named("ci").pk, Member.objects.get().pk) == (ci.pk, ann.pk)
    assert wallet("acme") == 100 * 10**9


def test_prune_leaves_alone_what_has_no_section_in_the_file(site: Site) -> None:
    site.apply(FILE)
    only_upstreams = FILE[: FILE.index("models:")]
    assert site.apply(only_upstreams, prune=True) == ["nothing to change"]


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
