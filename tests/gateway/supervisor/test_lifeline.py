"""Kill a supervisor of each kind and look whether its children live on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.supervisor.lifeline import GuardLine
from tests.gateway.processes import lives, wait_until

_PLATFORM = Path(__file__).resolve().parents[3] / "platform"
_SUPERVISOR = """
import os, pwd, signal, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from gateway.supervisor import Child, ChildSpec, Identity, lifeline
line = getattr(lifeline, sys.argv[2])()
folder = Path(sys.argv[3])
nobody = pwd.getpwnam("nobody")
other = Identity("nobody", nobody.pw_uid, nobody.pw_gid) if os.geteuid() == 0 else None
trap = 'trap "echo drained > $1; exit" TERM; echo trapped; while :; do sleep 0.1; done'
for spec in (
    ChildSpec("plain", ("sleep", "60"), os.environ),
    ChildSpec("other-user", ("sleep", "60"), os.environ, identity=other),
    ChildSpec("drains", ("/bin/sh", "-c", trap, "sh", str(folder / "drained")), os.environ),
):
    child = Child(spec, lifeline=line, log_dir=folder)
    child.start()
    print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["KernelLine", "GuardLine"])
def test_no_child_outlives_a_killed_supervisor(place, kind):
    if kind == "KernelLine" and sys.platform != "linux":
        kind = "GuardLine"
    supervisor = subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR, str(_PLATFORM), kind, str(place)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    with supervisor.stdout:
        children = [int(supervisor.stdout.readline()) for _ in range(3)]
    wait_until(lambda: "trapped" in (place / "drains.log").read_text())
    assert all(lives(pid) for pid in children)
    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not any(lives(pid) for pid in children))
    wait_until((place / "drained").exists)


def test_the_guard_leaves_with_its_supervisor():
    line = GuardLine()
    guard = line._guard
    line.forget(os.getpid())
    line.close()
    assert guard.returncode == 0


def test_a_lost_guard_does_not_stop_the_supervisor(capfd):
    line = GuardLine()
    line._guard.kill()
    line._guard.wait()
    line.forget(os.getpid())
    assert "guard" in capfd.readouterr().err
    line.close()
