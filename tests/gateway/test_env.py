import base64
import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import env


def test_without_variables_it_listens_on_this_machine_only(bare_env, place):
    env.check()
    assert (env.host(), env.port(), env.var_dir()) == ("127.0.0.1", 8000, place)
    assert env.public_url() is env.config_file() is env.email_server() is env.given_database_url() is None
    assert env.drain_s() == 30.0
    assert env.practice_allowed()
    assert env.trusted_proxies() == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOST", "http://relay"),
        ("PORT", "eighty"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("PORT", "٨٠"),
        ("WEB_WORKERS", "0"),
        ("WEB_WORKERS", "2.5"),
        ("DRAIN_S", "soon"),
        ("DRAIN_S", "nan"),
        ("DRAIN_S", "-1"),
        ("CONFIG", "/nowhere/config.yaml"),
        ("PUBLIC_URL", "relay.example.com"),
        ("PUBLIC_URL", "https://relay.example.com/path"),
        ("PUBLIC_URL", "https://ann@relay.example.com"),
        ("PUBLIC_URL", "https://relay.example.com:port"),
        ("TRUSTED_PROXIES", "10.0.0.0/8,everybody"),
        ("PRACTICE", "maybe"),
        ("EMAIL_URL", "mail.example.com"),
        ("EMAIL_URL", "smtp://"),
        ("DATABASE_URL", "sqlite:///db"),
        ("DATABASE_URL", "postgresql://ann:pw@server"),
        ("DATABASE_URL", "postgresql://ann:pw@/books"),
        ("DATABASE_URL", "postgresql://server/books"),
        ("REDIS_URL", "unix:///run/redis.sock"),
        ("REDIS_URL", "redis:///0"),
        ("LIMITS_REDIS_URL", "http://server"),
        ("SECRET_KEY", "short"),
        ("FIELD_KEYS", "bm90IDMyIGJ5dGVz"),
        ("FIELD_KEYS", "not base64 at all!"),
        ("FIELD_KEYS", ","),
        ("KEY_PEPPER", "short"),
        ("KEY_PEPPER", f"{'x' * 32},{'x' * 32}"),
        ("SECRET_KEY_FILE", "/nowhere/secret"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_the_variable(bare_env, name, value):
    bare_env.setenv(name, value)
    with pytest.raises(env.EnvError) as refusal:
        env.check()
    assert name in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_refusal_does_not_repeat_a_password(bare_env):
    bare_env.setenv("DATABASE_URL", "mysql://ann:hunter2@server/books")
    with pytest.raises(env.EnvError) as refusal:
        env.given_database_url()
    assert "hunter2" not in str(refusal.value)


def test_an_empty_variable_is_not_set(bare_env):
    bare_env.setenv("PORT", "")
    bare_env.setenv("DATABASE_URL", "")
    assert env.port() == 8000
    assert env.given_database_url() is None


def test_values_are_read_with_their_type(bare_env, place):
    (place / "config.yaml").touch()
    for name, value in {
        "HOST": "[::1]",
        "PORT": "0",
        "CONFIG": str(place / "config.yaml"),
        "PUBLIC_URL": "https://relay.example.com:8443/",
        "TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1",
        "PRACTICE": "0",
        "DRAIN_S": "2.5",
        "WEB_WORKERS": "3",
    }.items():
        bare_env.setenv(name, value)
    assert (env.host(), env.port(), env.web_workers()) == ("::1", 0, 3)
    assert env.config_file() == place / "config.yaml"
    assert env.public_url() == "https://relay.example.com:8443"
    assert [str(network) for network in env.trusted_proxies()] == ["10.0.0.0/8", "192.0.2.1/32"]
    assert not env.practice_allowed()
    assert env.drain_s() == 2.5


def test_mail_is_sent_with_starttls_unless_the_scheme_says_otherwise(bare_env):
    bare_env.setenv("EMAIL_URL", "smtp://ann:p%40ss@mail.example.com/?from=relay@example.com")
    assert env.email_server() == env.EmailServer(
        "mail.example.com", 587, "ann", "p@ss", "starttls", "relay@example.com"
    )
    bare_env.setenv("EMAIL_URL", "smtps://mail.example.com")
    assert env.email_server() == env.EmailServer(
        "mail.example.com", 465, "", "", "implicit", "yizhan@mail.example.com"
    )


def test_a_secret_may_come_from_a_file(bare_env, place):
    (place / "url").write_text("redis://:pw@server:6379/0\n")
    bare_env.setenv("REDIS_URL_FILE", str(place / "url"))
    assert env.redis_url() == env.limits_redis_url() == "redis://:pw@server:6379/0"


def test_a_secret_given_twice_is_refused(bare_env, place):
    (place / "url").write_text("redis://one")
    bare_env.setenv("REDIS_URL_FILE", str(place / "url"))
    bare_env.setenv("REDIS_URL", "redis://two")
    with pytest.raises(env.EnvError, match="REDIS_URL and REDIS_URL_FILE"):
        env.redis_url()


@pytest.mark.parametrize(("content", "what"), [(b"\n", "empty"), (b"x" * 70_000, "long"), (b"\xff", "text")])
def test_a_file_that_holds_no_secret_is_refused(bare_env, place, content, what):
    (place / "secret").write_bytes(content)
    bare_env.setenv("SECRET_KEY_FILE", str(place / "secret"))
    with pytest.raises(env.EnvError, match=f"SECRET_KEY_FILE.*{what}"):
        env.secret_key()


def test_given_secrets_win_over_generated_ones(bare_env):
    keys = [base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]
    generated = env.field_keys()
    bare_env.setenv("FIELD_KEYS", ",".join(keys))
    bare_env.setenv("KEY_PEPPER", f"{'a' * 32}, {'b' * 32}")
    assert env.field_keys() == (b"\x01" * 32, b"\x02" * 32) != generated
    assert env.key_peppers() == (b"a" * 32, b"b" * 32)
    assert env.generated_secrets() == ("SECRET_KEY",)


def test_generated_secrets_stay_the_same(bare_env):
    first = (env.secret_key(), env.field_keys(), env.key_peppers(), env.secret_fingerprints())
    assert first == (env.secret_key(), env.field_keys(), env.key_peppers(), env.secret_fingerprints())
    assert env.secret_key() not in str(env.secret_fingerprints())


def test_an_unusable_file_of_secrets_is_told_in_one_line(bare_env, place):
    (place / "secrets.json").write_text("{}")
    (place / "secrets.json").chmod(0o644)
    with pytest.raises(env.EnvError, match=r"secrets\.json is open to other users"):
        env.secret_key()


def test_other_commands_find_the_servers_of_a_running_up(bare_env, place):
    with _running_up(place, {"database_url": "postgresql://a@/b?host=/c", "redis_url": "redis://d"}):
        assert env.database_url() == "postgresql://a@/b?host=/c"
        assert env.redis_url() == "redis://d"
        assert env.database_parameters() == {"user": "a", "dbname": "b", "host": "/c"}
        bare_env.setenv("DATABASE_URL", "postgresql://own@server/own")
        assert env.database_url() == "postgresql://own@server/own"


def test_the_servers_of_a_killed_up_are_not_taken_for_running(bare_env, place):
    with _running_up(place, {"database_url": "postgresql://a@/b?host=/c"}):
        pass
    with pytest.raises(env.EnvError, match=r"DATABASE_URL is not set.*start `manage\.py up`"):
        env.database_url()


def test_without_a_server_the_way_out_is_named(bare_env):
    with pytest.raises(env.EnvError, match=r"start `manage\.py up`, or set REDIS_URL"):
        env.limits_redis_url()


def test_the_port_of_the_practice_provider_is_found(bare_env, place):
    assert env.practice_port() is None
    (place / "run").mkdir()
    (place / "run" / "practice.port").write_text("21000\n")
    assert env.practice_port() == 21000
    bare_env.setenv("PRACTICE_PORT", "22000")
    assert env.practice_port() == 22000


def test_the_console_socket_lies_in_the_folder_of_the_installation(bare_env, place):
    assert env.console_socket() == place / "run" / "console.sock"
    bare_env.setenv("CONSOLE_SOCKET", "/run/short.sock")
    assert env.console_socket() == Path("/run/short.sock")


@contextlib.contextmanager
def _running_up(place: Path, servers: dict[str, str]) -> Iterator[None]:
    """The traces of a running `manage.py up`: its file, and the lock it holds."""
    run = place / "run"
    run.mkdir()
    (run / "servers.json").write_text(json.dumps(servers))
    with (run / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
