import subprocess
import sys
from pathlib import Path

from gateway.supervisor import guard
from tests.gateway.processes import lives, wait_until


def test_a_child_that_ended_is_forgotten():
    assert guard.read_children(["+10 15", "+11 2", "-10", "-12"]) == {11: 2}


def test_children_of_a_supervisor_that_is_gone_are_ended():
    child = subprocess.Popen(["sleep", "60"])
    ended = subprocess.Popen(["sleep", "60"])
    subprocess.run(
        [sys.executable, "-I", "-S", str(Path(guard.__file__))],
        input=f"+{ended.pid} 15\n+{child.pid} 15\n-{ended.pid}\n",
        text=True,
        timeout=20,
        check=True,
    )
    wait_until(lambda: not lives(child.pid))
    assert lives(ended.pid)
    ended.kill()
    assert (child.wait(), ended.wait()) == (-15, -9)
