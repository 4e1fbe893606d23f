"""The real servers: as root and as somebody else, in open, private and deep folders, after a kill."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from gateway.embedded import LaunchError, Servers, running_servers
from gateway.embedded.postgres import LOGIN
from tests.gateway.processes import lives, make_place, wait_until

_AS_USER = Path(__file__).with_name("as_user.py")
_PLATFORM = Path(__file__).resolve().parents[3] / "platform"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    folder = make_place()
    with running_servers(folder) as running:
        yield running
    shutil.rmtree(folder)


def _connect(servers, role="relay_app", url=None):
    return psycopg.connect(url or servers.database_url, options=f"-c role={role}", autocommit=True)


def test_it_works(servers):
    with _connect(servers, "relay_owner") as owner, _connect(servers) as app:
        owner.execute("CREATE TABLE works (id bigserial PRIMARY KEY, word text)")
        app.execute("INSERT INTO works (word) VALUES ('驿站')")
        assert app.execute("SELECT word FROM works").fetchall() == [("驿站",)]
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.eval("return redis.call('INCRBY', KEYS[1], 5)", 1, "works") == 5


def test_postgres_opens_no_port_and_its_socket_asks_for_the_password(servers):
    with _connect(servers) as app:
        assert app.execute("SHOW listen_addresses").fetchone() == ("",)
        host = app.info.host
    assert host.startswith("/")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host=host, port=5432, user=LOGIN, dbname="yizhan", password="guess")


def test_the_database_sorts_the_same_on_every_machine(servers):
    with _connect(servers) as app:
        assert app.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        row = app.execute("SELECT datlocprovider, datlocale FROM pg_database WHERE datname = 'yizhan'")
        assert row.fetchone() == ("b", "C.UTF-8")


def test_valkey_asks_for_its_password_and_hides_it_from_the_process_list(servers):
    url = servers.redis_url
    password = url.partition(":")[2].split("@")[0].removeprefix("//:")
    with redis.Redis.from_url(url.replace(password, "guess")) as client, pytest.raises(redis.RedisError):
        client.ping()
    for process in psutil.process_iter(["cmdline"]):
        assert not any(password in word for word in process.info["cmdline"] or ())


def test_valkey_keeps_all_it_was_told_or_refuses(servers):
    with redis.Redis.from_url(servers.redis_url) as client:
        settings = client.config_get("*")
    assert settings["appendonly"] == "yes"
    assert settings["maxmemory-policy"] == "noeviction"
    assert int(settings["maxmemory"]) > 0
    assert settings["bind"] == "127.0.0.1"


def test_neither_server_runs_as_root(servers):
    with _connect(servers) as app:
        postmaster = psutil.Process(app.info.backend_pid).parent()
    valkey = int((servers.valkey.data / "valkey.pid").read_text())
    assert postmaster is not None
    assert 0 not in (postmaster.uids().real, psutil.Process(valkey).uids().real)
    assert 0 not in postmaster.gids()


def test_what_holds_a_password_is_private(servers):
    for path in (
        servers.postgres.data.parent / "passwords.json",
        servers.valkey.data.parent / "password",
        servers.valkey.data / "valkey.conf",
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not (servers.postgres.data.parent / "initdb.password").exists()
    assert stat.S_IMODE(servers.postgres.data.stat().st_mode) == 0o700


def test_two_installations_run_side_by_side(servers, place):
    with running_servers(place) as other:
        with _connect(other, "relay_owner") as there, _connect(servers, "relay_owner") as here:
            there.execute("CREATE TABLE side ()")
            assert here.execute("SELECT to_regclass('side')").fetchone() == (None,)
        assert other.redis_url != servers.redis_url


def test_a_second_start_keeps_data_and_passwords(place):
    with running_servers(place, settings={}) as first:
        with _connect(first, "relay_owner") as owner:
            owner.execute("CREATE TABLE kept AS SELECT 1 AS one")
        with redis.Redis.from_url(first.redis_url) as client:
            client.set("kept", 1)
        url = first.database_url
    with running_servers(place, settings={}) as second:
        assert second.database_url == url
        with _connect(second, "relay_owner") as owner:
            assert owner.execute("SELECT one FROM kept").fetchone() == (1,)
        with redis.Redis.from_url(second.redis_url) as client:
            assert client.get("kept") == b"1"


def test_servers_of_a_killed_supervisor_end_and_the_next_start_finds_their_data(place):
    code = f"""
import sys, time
sys.path.insert(0, {str(_PLATFORM)!r})
from pathlib import Path
from gateway.embedded import running_servers
import psycopg, redis
with running_servers(Path({str(place)!r})) as servers:
    with psycopg.connect(servers.database_url, options="-c role=relay_owner") as owner:
        owner.execute("CREATE TABLE kept AS SELECT 1 AS one")
    redis.Redis.from_url(servers.redis_url).set("kept", 1)
    print("up", flush=True)
    time.sleep(60)
"""
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    with supervisor.stdout:
        assert supervisor.stdout.readline() == "up\n"
    pids = [child.pid for child in psutil.Process(supervisor.pid).children(recursive=True)]
    assert len(pids) > 3
    supervisor.kill()
    supervisor.wait()
    # At once, while they may still be shutting down.
    with running_servers(place) as servers:
        with _connect(servers, "relay_owner") as owner:
            assert owner.execute("SELECT one FROM kept").fetchone() == (1,)
        with redis.Redis.from_url(servers.redis_url) as client:
            assert client.get("kept") == b"1"
    wait_until(lambda: not any(lives(pid) for pid in pids))


def test_killed_servers_recover(place):
    with running_servers(place, settings={}) as servers:
        with _connect(servers, "relay_owner") as owner:
            owner.execute("CREATE TABLE kept AS SELECT 1 AS one")
        postmaster = int((servers.postgres.data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        wait_until(lambda: not lives(postmaster))
    # Its number may belong to somebody else by now: here, to this test.
    pid_file = place / "pg" / "data" / "postmaster.pid"
    assert pid_file.exists()
    pid_file.write_text(pid_file.read_text().replace(str(postmaster), str(os.getpid()), 1))
    with running_servers(place) as servers, _connect(servers, "relay_owner") as owner:
        assert owner.execute("SELECT one FROM kept").fetchone() == (1,)


def test_a_deep_folder_gets_short_sockets(place):
    deep = place / ("d" * 120)
    deep.mkdir(mode=0o711)
    with running_servers(deep) as servers:
        with _connect(servers) as app:
            folder = Path(app.info.host)
        assert len(str(folder)) < 80
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_a_private_parent_stays_private(place):
    private = place / "private"
    private.mkdir(mode=0o700)
    for _ in range(2):
        with running_servers(private / "var") as servers, _connect(servers, "relay_owner") as owner:
            owner.execute("CREATE TABLE IF NOT EXISTS kept ()")
            with redis.Redis.from_url(servers.redis_url) as client:
                client.set("kept", 1)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_private_parent_may_also_be_deep(place):
    private = place / "private"
    private.mkdir(mode=0o700)
    deep = private / ("d" * 60) / ("e" * 60) / "var"
    deep.mkdir(parents=True)
    with running_servers(deep) as servers, _connect(servers, "relay_owner") as owner:
        assert owner.execute("SELECT 1").fetchone() == (1,)


def test_somebody_who_is_not_root_can_run_them(place):
    done = subprocess.run(
        [sys.executable, str(_AS_USER), str(place)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == 1
    assert told["user"] == told["postgres"] == told["valkey"] != 0


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """The folder of servers that ran and were stopped."""
    folder = make_place()
    with running_servers(folder):
        pass
    yield folder
    shutil.rmtree(folder)


def test_data_of_another_major_version_are_refused_by_name(stopped):
    version = stopped / "pg" / "data" / "PG_VERSION"
    text = version.read_text()
    version.write_text("9\n")
    with pytest.raises(LaunchError, match="PostgreSQL 9 is needed"), running_servers(stopped):
        pass
    version.write_text(text)


def test_data_without_their_passwords_are_refused(stopped):
    passwords = stopped / "pg" / "passwords.json"
    passwords.rename(stopped / "elsewhere")
    with pytest.raises(LaunchError, match=r"passwords\.json is missing"), running_servers(stopped):
        pass
    (stopped / "elsewhere").rename(passwords)


def test_a_server_that_does_not_start_says_why(stopped):
    with (
        pytest.raises(LaunchError, match=r"postgres does not start\n(.*\n)*.*shared_buffers"),
        running_servers(stopped, settings={"shared_buffers": "none"}),
    ):
        pass


def test_a_folder_that_holds_something_else_is_left_alone(place):
    (place / "pg" / "data").mkdir(parents=True)
    (place / "pg" / "data" / "photos").touch()
    with pytest.raises(LaunchError, match="holds no PostgreSQL data"), running_servers(place):
        pass
    assert (place / "pg" / "data" / "photos").exists()


def test_a_port_of_valkey_is_never_somebody_elses(servers):
    port = int(servers.redis_url.rpartition(":")[2].split("/")[0])
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port))
