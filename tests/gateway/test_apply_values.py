"""Values of a file that cannot be meant: money, addresses, credentials, names, keys."""

from pathlib import Path

import pytest

from tests.gateway.declared_parts import model, organization, problems_of, read, upstream


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


def test_a_password_that_is_too_short_is_refused_without_showing_it() -> None:
    problems = problems_of(
        organization(members="[{email: ann@acme.example, role: owner, password: seven77}]")
    )
    assert len(problems) == 1
    assert "organizations[0].members[0].password" in problems[0]
    assert "at least 8 characters" in problems[0]
    assert "seven77" not in problems[0]
