"""With `--prune`, and only with it, what the file does not name ends; none of it is deleted."""

import pytest

from accounts.models import Member
from relay.models import Model, Upstream
from tests.gateway.declared_sites import FILE, Site, key_named, wallet

pytestmark = pytest.mark.django_db


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
