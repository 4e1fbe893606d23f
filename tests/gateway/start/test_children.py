import os
import sys
from pathlib import Path

from gateway.start.children import SERVER_STAGE, House, child_environment, manage

_ROOT = Path("/srv/yizhan")


def test_what_was_decided_at_the_start_wins():
    environ = {"PORT": "0", "REDIS_URL_FILE": "/run/secret", "KEY_PEPPER_FILE": "/run/pepper", "PATH": "/bin"}
    env = child_environment(environ, {"PORT": "8123", "REDIS_URL": "redis://here"}, _ROOT)
    assert env["PORT"] == "8123"
    assert env["REDIS_URL"] == "redis://here"
    assert "REDIS_URL_FILE" not in env
    assert env["KEY_PEPPER_FILE"] == "/run/pepper"
    assert env["PATH"] == "/bin"


def test_children_find_our_packages_before_others():
    env = child_environment({"PYTHONPATH": "/theirs"}, {}, _ROOT)
    assert env["PYTHONPATH"].split(os.pathsep) == ["/srv/yizhan", "/srv/yizhan/platform", "/theirs"]
    assert "PYTHONPATH" not in child_environment({}, {}, None)


def test_a_command_runs_by_manage_py_or_where_there_is_none_by_django():
    assert manage("apply", "a.yaml", env={}, root=_ROOT).argv == (
        sys.executable,
        "/srv/yizhan/manage.py",
        "apply",
        "a.yaml",
    )
    assert manage("seed", env={}, root=None).argv == (sys.executable, "-m", "django", "seed")


async def test_those_who_depend_end_before_those_they_depend_on():
    async def ready() -> bool:
        return True

    house = House({}, None, Path("/run"), drain_s=7.0, gate=5)
    relay, console = house.relay(1, 3, ready), house.console(Path("/run/console.sock"), ready)
    assert relay.stage == console.stage < house.worker().stage == house.beat().stage
    assert house.beat().stage < house.practice(21000).stage < SERVER_STAGE
    assert relay.stop_s > 7.0 + 15.0
    assert relay.pass_fds == (3, 5)
    assert console.pass_fds == (5,)
    assert relay.argv[-2:] == console.argv[-2:] == ("--gate", "5")
    assert relay.nice == 0 < house.worker().nice
