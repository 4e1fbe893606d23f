"""`manage.py up` from end to end, with real servers and stand-ins for our own processes."""

import json
import os
import shutil
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator

import httpx
import psycopg
import pytest

from tests.gateway.house import House, get, house_at
from tests.gateway.processes import lives, make_place, wait_until


@pytest.fixture(scope="module")
def running() -> Iterator[House]:
    """One that stays up for many tests."""
    place = make_place()
    with house_at(place) as house:
        house.start()
        house.wait_ready()
        yield house
        assert house.end() == 0, house.err.read_text()
    shutil.rmtree(place)


@pytest.fixture
def house(place) -> Iterator[House]:
    """One that a test starts itself."""
    with house_at(place) as house:
        yield house


def test_it_works(running):
    url = running.wait_ready()
    assert get(f"{url}/readyz")
    lines = running.out.read_text().splitlines()
    assert lines[0] == f"ready: {url}"
    port = (running.var_dir / "run" / "practice.port").read_text().strip()
    assert lines[1] == f"login: ann@example.com, practice at {port}"
    assert len(lines) == 2
    assert running.commands() == ["prepare"]


def test_everything_runs_once_and_relays_as_often_as_asked(running):
    counts = {
        words: len(running.pids(words))
        for words in ("gateway.serve relay", "gateway.serve console", "-A gateway worker", "-A gateway beat")
    }
    assert list(counts.values()) == [2, 1, 1, 1]
    assert running.pids("valkey-server")
    assert running.pids("postgres -D")
    assert not running.pids("practice")


def test_other_commands_can_find_the_servers_and_other_people_cannot(running):
    path = running.var_dir / "run" / "servers.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = json.loads(path.read_text())
    assert sorted(found) == ["database_url", "redis_url"]
    with psycopg.connect(found["database_url"], options="-c role=relay_app") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_second_up_on_the_same_folder_is_refused(running, house):
    house.start(VAR_DIR=str(running.var_dir))
    assert house.process.wait(20) == 1
    assert house.err.read_text().splitlines() == [
        f"up: VAR_DIR {running.var_dir} is used by another `manage.py up` (process {running.process.pid})"
    ]
    assert get(f"{running.wait_ready()}/readyz")


def test_a_port_in_use_is_refused_before_anything_is_started(house):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        house.start("--port", str(port))
        assert house.process.wait(20) == 1
    assert house.err.read_text().count("\n") == 1
    assert f"PORT {port} is in use" in house.err.read_text()
    assert not (house.var_dir / "pg").exists()


@pytest.mark.parametrize(
    ("options", "variables", "words"),
    [
        (("--web-workers", "none"), {}, "WEB_WORKERS"),
        ((), {"DRAIN_S": "soon"}, "DRAIN_S"),
        (("--config", "/nowhere.yaml"), {}, "CONFIG"),
        (("--no-embedded",), {}, "DATABASE_URL must be set with --no-embedded"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(house, options, variables, words):
    house.start(*options, **variables)
    assert house.process.wait(20) == 1
    assert words in house.err.read_text()
    assert house.err.read_text().count("\n") == 1


def test_while_a_relay_restarts_callers_wait_and_are_not_refused(running):
    url = running.wait_ready()
    for pid in running.pids("gateway.serve relay"):
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
    answered_by = int(get(f"{url}/"))
    assert answered_by in running.pids("gateway.serve relay")
    assert "starting it again" in running.err.read_text()


def test_the_practice_provider_comes_and_goes_with_its_models(running):
    url = json.loads((running.var_dir / "run" / "servers.json").read_text())["database_url"]
    with psycopg.connect(url, options="-c role=relay_owner", autocommit=True) as owner:
        owner.execute("CREATE TABLE relay_model (name text, enabled boolean)")
        owner.execute("INSERT INTO relay_model VALUES ('practice-chat', true)")
        wait_until(lambda: running.pids("practice --port"))
        port = (running.var_dir / "run" / "practice.port").read_text().strip()
        assert running.family()[running.pids("practice --port")[0]].endswith(f"--port {port}")
        owner.execute("DELETE FROM relay_model")
        wait_until(lambda: not running.pids("practice --port"))


def test_a_stop_lets_a_running_call_end_and_leaves_nobody_behind(house):
    house.start(WEB_WORKERS="1")
    url = house.wait_ready()
    family = house.family()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(get(f"{url}/slow/1.5")))
    caller.start()
    _wait_for_call(house)
    assert house.end(signal.SIGTERM) == 0
    caller.join()
    assert len(answers) == 1
    assert not any(lives(pid) for pid in family)
    assert not (house.var_dir / "run" / "servers.json").exists()
    with pytest.raises(httpx.ConnectError):
        get(url)


def test_a_second_request_shortens_the_drain(house):
    house.start(WEB_WORKERS="1", DRAIN_S="600")
    url = house.wait_ready()

    def call() -> None:
        with pytest.raises(httpx.HTTPError):
            get(f"{url}/slow/300", timeout_s=60)

    caller = threading.Thread(target=call)
    caller.start()
    _wait_for_call(house)
    began = time.monotonic()
    house.process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in house.err.read_text())

    def asked_again() -> bool:
        house.process.send_signal(signal.SIGINT)
        return "stopping at once" in house.err.read_text()

    wait_until(asked_again)
    assert house.process.wait(60) == 0
    caller.join()
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_one_request_to_stop_that_arrives_twice_cuts_nobody_off(house, numbers):
    house.start(WEB_WORKERS="1")
    url = house.wait_ready()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(get(f"{url}/slow/3")))
    caller.start()
    _wait_for_call(house)
    # As a terminal, or `kill -- -GROUP`, with a make above that hands its signal on.
    for number in numbers:
        house.process.send_signal(number)
    assert house.process.wait(60) == 0
    caller.join()
    assert len(answers) == 1
    assert house.err.read_text().splitlines() == ["up: stopping"]


def test_nobody_outlives_a_killed_supervisor_and_the_next_start_works(house):
    house.start()
    house.wait_ready()
    family = house.family()
    assert len(family) > 8
    port = house.wait_ready().rpartition(":")[2]
    house.process.kill()
    house.process.wait()
    # At once, on the same port, while the others may still be ending.
    house.start(PORT=port)
    house.wait_ready()
    wait_until(lambda: not any(lives(pid) for pid in family))
    assert "login" not in house.out.read_text()
    assert house.end() == 0


def test_a_start_that_fails_says_why_and_stops_what_it_started(house):
    house.var_dir.mkdir()
    (house.var_dir / "no-migrate").touch()
    house.start()
    assert house.process.wait(60) == 1
    assert "relation relay_model is damaged" in house.err.read_text()
    assert house.out.read_text() == ""
    assert (house.var_dir / "pg" / "data").exists()
    assert not (house.var_dir / "pg" / "data" / "postmaster.pid").exists()


def test_nobody_serves_before_the_database_is_prepared(house):
    house.var_dir.mkdir()
    hold = house.var_dir / "slow-prepare"
    hold.touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    house.start(PORT=str(port), WEB_WORKERS="1")
    logs = [house.var_dir / "log" / name for name in ("relay-1.log", "console.log")]
    wait_until(lambda: all(log.exists() and "at the gate" in log.read_text() for log in logs), 60)
    with pytest.raises(httpx.ReadTimeout):
        get(f"http://127.0.0.1:{port}/", timeout_s=0.5)
    assert not (house.var_dir / "run" / "console.sock").exists()
    # One that is started again waits as well.
    first = house.pids("gateway.serve relay")[0]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: house.pids("gateway.serve relay") not in ([], [first]))
    wait_until(lambda: logs[0].read_text().count("at the gate") == 2)
    assert "ready: " not in house.out.read_text()
    hold.unlink()
    house.wait_ready()
    assert get(f"http://127.0.0.1:{port}/readyz")
    assert house.end() == 0


def test_a_stop_while_the_database_is_prepared_ends_everybody(house):
    house.var_dir.mkdir()
    (house.var_dir / "slow-prepare").touch()
    house.start()
    log = house.var_dir / "log" / "relay-2.log"
    wait_until(lambda: log.exists() and "at the gate" in log.read_text(), 60)
    family = house.family()
    assert house.end() == 0
    assert not any(lives(pid) for pid in family)
    assert house.err.read_text().splitlines() == ["up: stopping"]


def test_given_servers_are_used_and_a_configuration_is_applied(running, house, place):
    (place / "own.yaml").touch()
    found = json.loads((running.var_dir / "run" / "servers.json").read_text())
    house.start(
        "--no-embedded",
        WEB_WORKERS="1",
        CONFIG=str(place / "own.yaml"),
        DATABASE_URL=found["database_url"],
        REDIS_URL=found["redis_url"],
        PUBLIC_URL="https://relay.example.com/",
    )
    wait_until(lambda: "ready: " in house.out.read_text() or house.code is not None)
    assert house.out.read_text().splitlines()[0] == "ready: https://relay.example.com"
    assert house.commands() == [f"prepare --config {place}/own.yaml"]
    assert not house.pids("postgres")
    assert not (house.var_dir / "pg").exists()
    assert "SECRET_KEY, FIELD_KEYS, KEY_PEPPER: made for this machine alone" in house.err.read_text()
    assert house.end() == 0


def test_a_login_that_may_not_make_the_roles_gets_the_sql_for_its_administrator(running, house):
    passwords = json.loads((running.var_dir / "pg" / "passwords.json").read_text())
    socket_folder = running.var_dir / "pg" / "data"
    where = {"host": str(socket_folder), "user": "postgres", "password": passwords["postgres"]}
    with psycopg.connect(**where, dbname="postgres", autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN PASSWORD 'pw'")
        admin.execute("CREATE DATABASE books")
    variables = {
        "DATABASE_URL": f"postgresql://plain:pw@/books?host={socket_folder}",
        "REDIS_URL": json.loads((running.var_dir / "run" / "servers.json").read_text())["redis_url"],
        "WEB_WORKERS": "1",
    }
    house.start(**variables)
    assert house.process.wait(60) == 1
    assert "plain may not make them" in house.err.read_text()
    with psycopg.connect(**where, dbname="books", autocommit=True) as admin:
        admin.execute(house.out.read_text())
    house.start(**variables)
    house.wait_ready()
    assert house.end() == 0


def _wait_for_call(house: House) -> None:
    """Until the relay has begun to answer the caller: then a stop has to wait for it."""
    log = house.var_dir / "log" / "relay-1.log"
    wait_until(lambda: "slow call" in log.read_text())
