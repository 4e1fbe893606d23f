import os
import signal
import sys
import tempfile

import pytest

from gateway.supervisor import Child, ChildSpec, StartError, make_lifeline
from tests.gateway.processes import wait_until


def _child(place, *argv, **more):
    spec = ChildSpec(name="child", argv=argv, env={"PATH": os.defpath}, **more)
    return Child(spec, lifeline=make_lifeline(), log_dir=place)


def _finish(child):
    codes = []
    wait_until(lambda: codes or codes.extend(code for code in [child.poll()] if code is not None))
    return codes[0]


def test_it_works(place):
    child = _child(place, "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    child.start()
    assert child.pid is not None
    assert _finish(child) == 3
    assert child.pid is None
    assert sorted(child.last_words()) == ["err", "out"]


def test_a_program_that_is_not_there_is_told_by_name(place):
    with pytest.raises(StartError, match="child cannot be started"):
        _child(place, "/nowhere/program").start()


def test_it_gets_the_environment_of_its_spec_and_nothing_else(place):
    child = _child(place, "/usr/bin/env")
    child.start()
    _finish(child)
    assert child.last_words() == [f"PATH={os.defpath}"]


def test_a_signal_from_the_terminal_does_not_reach_it(place):
    child = _child(place, "sleep", "60")
    child.start()
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    child.send(signal.SIGTERM)
    assert _finish(child) == -15


def test_last_words_are_those_of_this_start(place):
    child = _child(place, "/bin/sh", "-c", "echo $PPID$$")
    child.start()
    _finish(child)
    first = child.last_words()
    child.start()
    _finish(child)
    assert len(child.last_words()) == 1
    assert child.last_words() != first


def test_a_named_descriptor_is_handed_over_and_no_other(place):
    with tempfile.TemporaryFile() as kept, tempfile.TemporaryFile() as other:
        code = f"import os; os.write({kept.fileno()}, b'here'); os.fstat({other.fileno()})"
        child = _child(place, sys.executable, "-S", "-c", code, pass_fds=(kept.fileno(),))
        child.start()
        assert _finish(child) == 1
        kept.seek(0)
        assert kept.read() == b"here"


def test_work_in_the_background_is_nice(place):
    child = _child(place, "nice", nice=5)
    child.start()
    _finish(child)
    assert child.last_words() == [str(min(os.nice(0) + 5, 19))]


def test_output_can_go_elsewhere(place):
    with tempfile.TemporaryFile() as output:
        child = _child(place, "/bin/sh", "-c", "echo secret; echo trouble >&2")
        child.start(output)
        _finish(child)
        output.seek(0)
        assert output.read() == b"secret\n"
    assert child.last_words() == ["trouble"]
