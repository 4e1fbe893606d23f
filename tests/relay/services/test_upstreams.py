from dataclasses import replace
from decimal import Decimal

import pytest

from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.permissions import SYSTEM, Acting
from relay.models import Upstream
from relay.services.upstreams import (
    UpstreamTerms,
    check_terms,
    credential_is,
    save_upstream,
    set_upstream_enabled,
    terms_of,
)

pytestmark = pytest.mark.django_db
TERMS = UpstreamTerms(
    protocol="openai",
    base_url="https://api.example.com/v1",
    credential="sk-secret",
    proxy="socks5://proxy.example.com:1080",
    cost_multiplier=Decimal("1.25"),
    timeouts={"connect_s": 2.5},
    extra_headers={"X-Team": "relay"},
)


def test_an_upstream_is_kept_with_its_credential_sealed() -> None:
    upstream = save_upstream(acting=SYSTEM, name="a", terms=TERMS)
    upstream.refresh_from_db()
    assert b"sk-secret" not in bytes(upstream.credential_sealed)
    assert terms_of(upstream) == TERMS
    assert "sk-secret" not in repr(terms_of(upstream))


def test_a_change_that_leaves_the_credential_does_not_seal_it_anew() -> None:
    upstream = save_upstream(acting=SYSTEM, name="a", terms=TERMS)
    sealed = bytes(upstream.credential_sealed)
    save_upstream(acting=SYSTEM, name="a", terms=replace(TERMS, probe=False), upstream=upstream)
    assert bytes(Upstream.objects.get().credential_sealed) == sealed


def test_a_new_name_seals_the_credential_for_it() -> None:
    upstream = save_upstream(acting=SYSTEM, name="a", terms=TERMS)
    save_upstream(acting=SYSTEM, name="b", terms=TERMS, upstream=upstream)
    assert terms_of(Upstream.objects.get(name="b")).credential == "sk-secret"


def test_after_a_rotation_of_keys_the_credential_counts_as_changed(settings) -> None:
    upstream = save_upstream(acting=SYSTEM, name="a", terms=TERMS)
    assert credential_is(upstream, "sk-secret")
    settings.FIELD_KEYS = (b"n" * 32, *settings.FIELD_KEYS)
    assert not credential_is(upstream, "sk-secret")
    settings.FIELD_KEYS = (b"x" * 32,)
    assert not credential_is(upstream, "sk-secret")


def test_a_name_is_taken_once() -> None:
    save_upstream(acting=SYSTEM, name="a", terms=TERMS)
    with pytest.raises(Conflict):
        save_upstream(acting=SYSTEM, name="a", terms=TERMS)


def test_it_is_switched_off_and_on() -> None:
    upstream = save_upstream(acting=SYSTEM, name="a", terms=TERMS)
    assert not set_upstream_enabled(acting=SYSTEM, upstream=upstream, enabled=False).enabled
    assert set_upstream_enabled(acting=SYSTEM, upstream=upstream, enabled=True).enabled


def test_only_operators_touch_upstreams() -> None:
    nobody = Acting("ann", frozenset(), 1)
    upstream = save_upstream(acting=SYSTEM, name="a", terms=TERMS)
    with pytest.raises(NotAllowed):
        save_upstream(acting=nobody, name="b", terms=TERMS)
    with pytest.raises(NotAllowed):
        set_upstream_enabled(acting=nobody, upstream=upstream, enabled=False)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"protocol": "smtp"}, "protocol"),
        ({"base_url": "https://x/" + "a" * 500}, "base_url"),
        ({"credential": ""}, "credential"),
        ({"credential": "two words"}, "credential"),
        ({"credential": "line\nbreak"}, "credential"),
        ({"proxy": "ftp://x"}, "proxy"),
        ({"cost_multiplier": Decimal("-1")}, "cost_multiplier"),
        ({"cost_multiplier": Decimal("1.0000001")}, "cost_multiplier"),
        ({"timeouts": {"connect_s": 0}}, "timeouts.connect_s"),
        ({"timeouts": {"nap_s": 1}}, "timeouts.nap_s"),
        ({"extra_headers": {"Content-Length": "5"}}, "extra_headers.Content-Length"),
        ({"extra_headers": {"a": "x\r\ny: z"}}, "extra_headers.a"),
    ],
)
def test_terms_that_cannot_be_are_refused(changed: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_terms(replace(TERMS, **changed))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "0177.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "localhost", "ollama"]
)
def test_an_address_of_our_own_house_needs_permission(host: str) -> None:
    with pytest.raises(Invalid, match="allow_private"):
        check_terms(replace(TERMS, base_url=f"http://{host}/v1"))
    check_terms(replace(TERMS, base_url=f"http://{host}/v1", allow_private=True))
