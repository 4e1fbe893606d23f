import os
import signal
import subprocess

import pytest

from gateway.embedded import LaunchError
from gateway.embedded.leftover import end_leftover, find_leftover
from tests.gateway.processes import wait_until


@pytest.fixture
def worker(place):
    """A process at work in the folder, which ends when it is asked."""
    process = subprocess.Popen(["sleep", "60"], cwd=place)
    yield process
    process.kill()
    process.wait()


def test_a_leftover_is_ended_and_its_file_removed(place, worker):
    file = place / "server.pid"
    file.write_text(f"{worker.pid}\n{place}\n")
    assert find_leftover(file, place) == worker.pid
    end_leftover(file, place, signal.SIGTERM, wait_s=10)
    wait_until(lambda: worker.poll() is not None)
    assert not file.exists()


def test_a_number_that_belongs_to_somebody_else_now_is_left_alone(place, worker):
    file = place / "server.pid"
    (place / "data").mkdir()
    file.write_text(f"{worker.pid}\n")
    end_leftover(file, place / "data", signal.SIGTERM, wait_s=10)
    assert worker.poll() is None
    assert not file.exists()


@pytest.mark.parametrize("text", ["", "\n", "-1", "0", "many", "999999999"])
def test_a_file_that_names_nobody_is_removed(place, text):
    file = place / "server.pid"
    file.write_text(text)
    end_leftover(file, place, signal.SIGTERM, wait_s=0)
    assert not file.exists()
    assert find_leftover(file, place) is None


def test_one_that_does_not_end_stops_the_start(place):
    stubborn = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; touch up; sleep 60"], cwd=place)
    file = place / "server.pid"
    file.write_text(f"{stubborn.pid}\n")
    wait_until((place / "up").exists)
    with pytest.raises(LaunchError, match=f"process {stubborn.pid} of an earlier start"):
        end_leftover(file, place, signal.SIGTERM, wait_s=0.2)
    assert file.exists()
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(stubborn.pid)], capture_output=True, text=True, check=True
    )
    for pid in children.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    stubborn.kill()
    stubborn.wait()
