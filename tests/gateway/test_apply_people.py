"""Members and keys that a file declares: what a person changed meanwhile stays."""

import pytest
from django.conf import settings as site_settings

from accounts.keys import fingerprint
from accounts.models import Key, User
from accounts.permissions import SYSTEM
from accounts.services.keys import revoke_key
from tests.gateway.declared_sites import FILE, KEY, OTHER_KEY, Site, key_named

pytestmark = pytest.mark.django_db


def test_a_generated_key_is_printed_once_and_kept_as_a_fingerprint(site: Site) -> None:
    shown = [line for line in site.apply(FILE) if line.startswith("key laptop of acme, shown this once: ")]
    clear = shown[0].rpartition(" ")[2]
    assert clear.startswith("sk-yz-")
    assert bytes(key_named("laptop").fingerprint) == fingerprint(clear.encode(), site_settings.KEY_PEPPERS[0])
    assert clear not in "\n".join(site.apply(FILE))


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


def test_a_key_for_a_model_that_is_not_there_gets_a_note(site: Site) -> None:
    lines = site.apply(FILE.replace("models: [kimi-k2]", "models: [kimi-k3, moonshot-auto]"))
    notes = [line for line in lines if line.startswith("note: ")]
    assert "there is no model 'kimi-k3'" in notes[0]
    assert "'moonshot-auto' is an alias: name the model itself, 'kimi-k2'" in notes[1]


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
