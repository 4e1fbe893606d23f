"""What a file may say, and how a person is told what is wrong with it."""

from decimal import Decimal
from pathlib import Path

import pytest

from accounts.limits import Limits
from gateway.applyfile import nodes
from gateway.applyfile.declared import Declared
from gateway.applyfile.problems import FileRefused, Problems
from gateway.applyfile.reading import read_declared
from gateway.applyfile.secrets import SecretSource
from relay.services.upstreams import UpstreamTerms

ENVIRONMENT = {"KIMI_A": "sk-kimi-secret", "ANN_PASSWORD": "correct horse"}

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


def read(text: str | bytes, folder: Path = Path()) -> Declared:
    data = text.encode() if isinstance(text, str) else text
    secrets = SecretSource(ENVIRONMENT.get, folder)
    return read_declared(data, problems=Problems("file.yaml"), secrets=secrets)


def problems_of(text: str | bytes, folder: Path = Path()) -> list[str]:
    with pytest.raises(FileRefused) as caught:
        read(text, folder)
    return caught.value.problems


def upstream(**changed: str) -> str:
    fields = {
        "name": "a",
        "protocol": "openai",
        "base_url": "https://api.example.com/v1",
        "credential": "secret",
        **changed,
    }
    return "upstreams:\n  - " + "\n    ".join(f"{name}: {value}" for name, value in fields.items()) + "\n"


def model(**changed: str) -> str:
    fields = {"name": "m", "price": '{currency: CNY, input: "1", output: "2"}', **changed}
    return "models:\n  - " + "\n    ".join(f"{name}: {value}" for name, value in fields.items()) + "\n"


def organization(**changed: str) -> str:
    fields = {"name": "acme", **changed}
    return "organizations:\n  - " + "\n    ".join(f"{name}: {value}" for name, value in fields.items()) + "\n"


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


@pytest.mark.parametrize("value", ["4.00", "0.1", ".5"])
def test_money_that_yaml_takes_for_a_float_is_refused_with_a_hint(value: str) -> None:
    shown = problems_of(model(price=f"{{currency: CNY, input: {value}, output: '1'}}"))
    assert "models[0].price.input: must be quoted" in shown[0]
    assert f'"{value}"' in shown[0]


@pytest.mark.parametrize(
    "value", ["'-1'", "'1,5'", "'x'", "'1e3'", "''", "[1]", "'.5'", "-1", "'1.0000000000001'"]
)
def test_what_is_no_amount_is_refused(value: str) -> None:
    assert (
        "models[0].price.input: must"
        in problems_of(model(price=f"{{currency: CNY, input: {value}, output: '1'}}"))[0]
    )


def test_a_whole_number_is_an_exact_amount_too() -> None:
    found = read(model(price="{currency: CNY, input: 0, output: 12}"))
    assert found.models and found.models[0].price.output == 12


def test_a_price_out_of_all_reason_is_refused() -> None:
    shown = problems_of(model(price="{currency: CNY, input: '4', output: '1000001'}"))
    assert "models[0].price.output: A price above 1,000,000" in shown[0]


def test_a_budget_finer_than_the_unit_is_refused() -> None:
    shown = problems_of(organization(limits="{budget: '0.0000000001'}"))
    assert "must have at most 9 digits" in shown[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base_url": "ftp://x"}, "must start with http:// or https://"),
        ({"base_url": "https://user:pw@example.com"}, "must not hold a user or password"),
        ({"base_url": "http://127.0.0.1:9100/v1"}, "needs allow_private: true"),
        ({"base_url": "http://localhost/v1"}, "needs allow_private: true"),
        ({"base_url": "http://10.1.2.3/v1"}, "needs allow_private: true"),
        ({"base_url": "http://[::1]/v1"}, "needs allow_private: true"),
        ({"base_url": "http://0x7f.1/v1"}, "needs allow_private: true"),
        ({"base_url": "http://2130706433/v1"}, "needs allow_private: true"),
        ({"base_url": "http://169.254.169.254/"}, "needs allow_private: true"),
        ({"cost_multiplier": "-1"}, "must be a number from 0"),
        ({"cost_multiplier": "5000"}, "taken for a slip"),
        ({"timeouts": "{connect_s: 0}"}, "must be a number of seconds above 0"),
        ({"timeouts": "{total_s: 9999999}"}, "at most a day"),
        ({"timeouts": "{conect_s: 1}"}, "did you mean connect_s?"),
        ({"extra_headers": "{Host: x}"}, "the relay's own"),
        ({"extra_headers": '{"a b": x}'}, "no header"),
        ({"enabled": "yes"}, "must be true or false, not 'yes'"),
        ({"proxy": "ftp://proxy"}, "must start with http://"),
    ],
)
def test_an_upstream_that_cannot_be_meant_is_refused(fields: dict[str, str], message: str) -> None:
    assert message in "\n".join(problems_of(upstream(**fields)))


@pytest.mark.parametrize(
    "base_url", ["https://[2606:4700::1111]/v1", "https://1.1.1.1/v1", "http://api.example.com"]
)
def test_public_addresses_need_no_permission(base_url: str) -> None:
    assert read(upstream(base_url=base_url)).upstreams


def test_several_credentials_are_several_upstreams_with_one_name_for_routes() -> None:
    text = upstream(credentials="[one, env:KIMI_A]").replace("    credential: secret\n", "")
    found = read(text)
    assert found.upstreams
    assert [(u.name, u.terms.credential) for u in found.upstreams] == [
        ("a-1", "one"),
        ("a-2", "sk-kimi-secret"),
    ]
    assert found.accounts_of == {"a": ("a-1", "a-2")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"credential": "env:NOT_SET"},
            "upstreams[0].credential: the environment variable NOT_SET is not set",
        ),
        ({"credential": "'env:'"}, "env: must be followed by the name"),
        ({"credential": "file:missing"}, "cannot be read"),
        ({"credential": "null"}, "needs a credential"),
        ({"credentials": "[b]"}, "give either credential or credentials"),
        ({"credential": '"two words"'}, "visible ASCII"),
    ],
)
def test_a_credential_that_is_not_there_is_refused(fields: dict[str, str], message: str) -> None:
    assert message in "\n".join(problems_of(upstream(**fields)))


def test_a_credential_may_lie_in_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "kimi.key").write_text("from-a-file\n")
    found = read(upstream(credential="file:kimi.key"), tmp_path)
    assert found.upstreams and found.upstreams[0].terms.credential == "from-a-file"


def test_no_secret_is_ever_repeated_in_an_error_or_a_representation() -> None:
    secret = "sk-very-secret-value"
    text = upstream(
        credential=f'"{secret} with a space"', extra_headers=f'{{Authorization: "{secret}\\u00e9"}}'
    ) + organization(
        members=f"[{{email: ann@acme.example, role: nobody, password: {secret}}}]",
        keys=f'[{{name: ci, value: "{secret} "}}]',
    )
    assert secret not in "\n".join(problems_of(text))
    assert secret not in repr(read(upstream(credential=secret, proxy=f"http://u:{secret}@proxy:80")))
    for broken in (
        f"credential: *{secret}",
        f"credential: &{secret}",
        f'credential: "{secret}',
        f"a: {secret}: b",
    ):
        assert secret not in "\n".join(problems_of(broken))


def test_the_same_name_twice_is_refused() -> None:
    twice = upstream() + upstream().removeprefix("upstreams:\n")
    assert "there are two upstreams named 'a'" in problems_of(twice)[0]
    both = upstream(credentials="[x]").replace("    credential: secret\n", "")
    clash = both + upstream(name="a-1").removeprefix("upstreams:\n")
    assert "two upstreams named 'a-1'" in problems_of(clash)[0]
    assert (
        "two organizations"
        in problems_of(organization() + organization().removeprefix("organizations:\n"))[0]
    )
    assert "two keys named 'k'" in problems_of(organization(keys="[{name: k}, {name: k}]"))[0]
    assert (
        "two members"
        in problems_of(organization(members="[{email: a@b.c, role: owner}, {email: A@b.c, role: admin}]"))[0]
    )


def test_two_keys_with_one_value_are_refused_even_across_organizations() -> None:
    value = "v" * 20
    first = organization(keys=f"[{{name: k, value: {value}}}]")
    second = organization(name="other", keys=f"[{{name: k, value: {value}}}]").removeprefix(
        "organizations:\n"
    )
    shown = problems_of(first + second)
    assert "organizations[1].keys[0].value: two keys cannot have the same value" in shown[0]
    assert value not in shown[0]


@pytest.mark.parametrize(
    ("second", "field"),
    [({"name": "m"}, "name"), ({"name": "alias"}, "name"), ({"name": "n", "aliases": "[m]"}, "aliases")],
)
def test_one_name_stands_for_one_model(second: dict[str, str], field: str) -> None:
    text = model(aliases="[alias]") + model(**second).removeprefix("models:\n")
    shown = problems_of(text)
    assert f"models[1].{field}: " in shown[0]
    assert "is a name of the model 'm' already" in shown[0]


@pytest.mark.parametrize("alias", ['"a*b*"', '"*"', '"**"'])
def test_an_alias_holds_one_star_and_more_than_it(alias: str) -> None:
    assert "models[0].aliases" in problems_of(model(aliases=f"[{alias}]"))[0]


def test_a_field_that_stands_twice_is_refused() -> None:
    shown = problems_of(
        "models:\n  - name: a\n    name: b\n    price: {currency: CNY, input: '1', output: '1'}\n"
    )
    assert shown == ["file.yaml:3: models[0].name: stands here twice (first on line 2) (column 5)"]


@pytest.mark.parametrize(
    "value", ["too short", "x" * 201, '"kéy-with-an-accent-in-it"', '"with spaces in the middle of it"']
)
def test_a_fixed_key_has_20_to_200_visible_characters(value: str) -> None:
    assert (
        "organizations[0].keys[0].value: must be 20 to 200"
        in problems_of(organization(keys=f"[{{name: k, value: {value}}}]"))[0]
    )


@pytest.mark.parametrize("value", ["v" * 20, '"' + "~!#" * 66 + '"', "'env:looks-like-a-variable'"])
def test_any_visible_text_of_that_length_is_a_key(value: str) -> None:
    found = read(organization(keys=f"[{{name: k, value: {value}}}]"))
    assert found.organizations and found.organizations[0].keys[0].value == value.strip("\"'")


@pytest.mark.parametrize("name", ["Acme", "a_b", "-a", "a" * 64, "''"])
def test_an_organizations_name_is_a_slug(name: str) -> None:
    assert "organizations[0].name" in problems_of(organization(name=name))[0]


@pytest.mark.parametrize("balance", ['{CNY: "1", USD: "2"}', '{yuan: "1"}', "{CNY: 1.5}", '"5"'])
def test_a_balance_is_one_amount_of_one_currency(balance: str) -> None:
    assert "organizations[0].balance" in problems_of(organization(balance=balance))[0]


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


def test_a_password_that_is_too_short_is_refused_without_showing_it() -> None:
    problems = problems_of(
        organization(members="[{email: ann@acme.example, role: owner, password: seven77}]")
    )
    assert len(problems) == 1
    assert "organizations[0].members[0].password" in problems[0]
    assert "at least 8 characters" in problems[0]
    assert "seven77" not in problems[0]
