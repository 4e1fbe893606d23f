"""What a file may say, and how a person is told what is wrong with its form."""

from decimal import Decimal

import pytest

from accounts.limits import Limits
from gateway.applyfile import nodes
from relay.services.upstreams import UpstreamTerms
from tests.gateway.declared_parts import model, organization, problems_of, read, upstream

WHOLE = """
upstreams:
  - name: kimi-a
    protocol: openai
    base_url: http://127.0.0.1:9100/v1
    credential: env:KIMI_A
    enabled: true
    proxy: null
    cost_multiplier: 1.0
    limits: {rpm: null, tpm: null, concurrency: null}
    timeouts: {connect_s: 5, first_token_s: 300, idle_s: 120.5, total_s: 3600}
    extra_headers: {X-Team: relay}
    allow_private: true
    probe: true
    hedge: false
models:
  - name: kimi-k2
    aliases: [moonshot-v1-auto, "moonshot-*"]
    kind: chat
    context_tokens: 262144
    hold_output_tokens: 4096
    price:
      currency: CNY
      input: "4.00"
      cached_input: "1.00"
      cache_write_5m: "5.00"
      output: "16.00"
      discount: "0.85"
    routes:
      - {upstream: kimi-a, upstream_model: kimi-k2-0905, priority: 0, weight: 1}
organizations:
  - name: acme
    title: Acme Ltd
    balance: {CNY: "100.00"}
    limits: {}
    members:
      - {email: Ann@acme.example, role: owner, password: env:ANN_PASSWORD}
    keys:
      - name: ci
        value: sk-yz-test-0000000000000000000000000000000000000000
        member: ann@acme.example
        models: [kimi-k2]
        scopes: [call]
        limits: {rpm: 600, budget: "12.5"}
"""


def test_the_whole_schema_is_read() -> None:
    found = read(WHOLE)
    assert found.upstreams and found.models and found.organizations
    assert found.upstreams[0].terms == UpstreamTerms(
        protocol="openai",
        base_url="http://127.0.0.1:9100/v1",
        credential="sk-kimi-secret",
        timeouts={"connect_s": 5, "first_token_s": 300, "idle_s": 120.5, "total_s": 3600},
        extra_headers={"X-Team": "relay"},
        allow_private=True,
    )
    kimi = found.models[0]
    assert (kimi.terms.aliases, kimi.terms.context_tokens) == (("moonshot-v1-auto", "moonshot-*"), 262144)
    assert (kimi.price.input, kimi.price.cache_write_1h, kimi.price.discount) == (4, None, Decimal("0.85"))
    assert (kimi.routes[0].upstream, kimi.routes[0].upstream_model) == ("kimi-a", "kimi-k2-0905")
    acme = found.organizations[0]
    assert (acme.title, acme.currency, acme.opening_nano) == ("Acme Ltd", "CNY", 100 * 10**9)
    assert (acme.members[0].email, acme.members[0].password) == ("ann@acme.example", "correct horse")
    assert acme.keys[0].limits == Limits(budget_nano=12_500_000_000, rpm=600)
    assert acme.keys[0].models == ("kimi-k2",)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "upstreams:\nmodels: null\norganizations: []\n"])
def test_a_file_may_declare_nothing(text: str) -> None:
    found = read(text)
    assert not found.upstreams and not found.models and not found.organizations


def test_an_error_names_file_line_field_and_column() -> None:
    text = "organizations:\n  - name: acme\n    keys:\n      - name: ci\n        limits: {rpm: x}\n"
    assert problems_of(text) == [
        "file.yaml:5: organizations[0].keys[0].limits.rpm: must be a whole number above 0, not 'x' (column 23)"
    ]


def test_all_errors_of_a_file_are_told_at_once() -> None:
    text = upstream(protocol="smtp", base_url="ftp://x") + model(kind="shoe") + organization(title="[1]")
    shown = "\n".join(problems_of(text))
    for part in ("upstreams[0].protocol", "models[0].kind", "organizations[0].title"):
        assert part in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b", "a: unknown field 'a'"),
        ("upstream: []", "did you mean upstreams?"),
        (upstream(base_ulr="x"), "unknown field 'base_ulr'; did you mean base_url?"),
        (
            organization(limits="{rmp: 5}"),
            "organizations[0].limits.rmp: unknown field 'rmp'; did you mean rpm?",
        ),
        ("- 1", "must be a mapping, not a list"),
        ("upstreams: 5", "upstreams: must be a list, not a value"),
        ("upstreams: [5]", "upstreams[0]: must be a mapping"),
        ("upstreams: [null]", "upstreams[0]: needs a field name"),
        ("models: [{name: a}]", "models[0]: needs a field price"),
        (model(price="{currency: CNY, input: '1'}"), "models[0].price: needs a field output"),
        (model(name="''"), "models[0].name: must be text, not empty"),
        ("? [1]\n: 2", "a field's name must be text"),
    ],
)
def test_what_is_missing_or_unknown_is_refused_by_name(text: str, message: str) -> None:
    assert message in "\n".join(problems_of(text))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (upstream(protocol="anthropic"), "upstreams[0].protocol"),
        (upstream(protocol="openai-responses"), "upstreams[0].protocol"),
        (upstream(protocol="gemini"), "upstreams[0].protocol"),
        (upstream(hedge="true"), "upstreams[0].hedge"),
        (upstream(limits="{rpm: 5}"), "upstreams[0].limits.rpm"),
        (model(kind="rerank"), "models[0].kind"),
        (model(price="{currency: CNY, input: '1', output: '1', per_call: '1'}"), "models[0].price.per_call"),
        (model(price="{currency: CNY, input: '1', output: '1', tiers: [1]}"), "models[0].price.tiers"),
        (organization(limits="{daily_limit: '5'}"), "organizations[0].limits.daily_limit"),
        (organization(groups="[a]"), "organizations[0].groups"),
        (
            organization(members="[{email: a@b.c, role: owner, limits: {rpm: 1}}]"),
            "organizations[0].members[0].limits",
        ),
        (organization(keys="[{name: a, group: g}]"), "organizations[0].keys[0].group"),
        (organization(keys="[{name: a, limits: {tpm: 5}}]"), "organizations[0].keys[0].limits.tpm"),
    ],
)
def test_what_a_later_version_brings_is_refused_by_name(text: str, path: str) -> None:
    shown = problems_of(text)
    assert len(shown) == 1
    assert f"{path}: " in shown[0]
    assert "not supported yet" in shown[0]


def test_an_embedding_model_needs_no_price_for_an_output_that_it_has_not() -> None:
    found = read(model(kind="embedding", price="{currency: CNY, input: '0.5'}")).models
    assert found
    assert (found[0].terms.kind, found[0].price.input, found[0].price.output) == (
        "embedding",
        Decimal("0.5"),
        0,
    )
    given = read(model(kind="embedding", price="{currency: CNY, input: '0.5', output: '1'}")).models
    assert given and given[0].price.output == 1


def test_a_later_field_that_says_nothing_is_no_error() -> None:
    read(upstream(hedge="false", proxy="null", limits="{rpm: null}") + organization(groups="[]"))


def test_a_field_that_stands_twice_is_refused() -> None:
    shown = problems_of(
        "models:\n  - name: a\n    name: b\n    price: {currency: CNY, input: '1', output: '1'}\n"
    )
    assert shown == ["file.yaml:3: models[0].name: stands here twice (first on line 2) (column 5)"]


@pytest.mark.parametrize(
    "data",
    [
        b"a: [",
        b"a: \x07",
        b"\xff\xfe\x00",
        b"a: b: c",
        b"--- 1\n--- 2\n",
        b"a: !!python/object/apply:os.system [x]",
        b"upstreams: !foo [1]\n",
        b"upstreams: [{name: !!binary aGk=}]",
        b"x: " + b"[" * 200,
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_plain_yaml_is_refused_in_a_line(data: bytes) -> None:
    shown = problems_of(data)
    assert 1 <= len(shown) <= 3
    assert all(line.startswith("file.yaml") for line in shown)


def test_aliases_within_aliases_do_not_blow_up() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
    assert "holds too much" in problems_of(bomb)[0]
    assert "inside what it stands for" in problems_of("a: &a [*a]")[0]


def test_an_alias_is_fine_where_it_helps() -> None:
    price = "&p {currency: CNY, input: '1', output: '2'}"
    found = read(model(price=price) + model(name="n", price="*p").removeprefix("models:\n"))
    assert found.models and found.models[0].price == found.models[1].price


def test_a_huge_file_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_BYTES", 10)
    assert "is larger than" in problems_of("upstreams: []")[0]
