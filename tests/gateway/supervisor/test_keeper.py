"""The supervisor with stand-in children: small shell scripts that fail, drain or refuse to end."""

import asyncio
import contextlib
import itertools
import os
import signal
import time

import pytest

from gateway.supervisor import ChildSpec, RunFailed, Supervisor, make_lifeline
from gateway.supervisor.keeper import Pauses, restart_pause_s
from tests.gateway.processes import lives

_FAST = Pauses(first_s=0.02, longest_s=0.2, healthy_s=0.5, early_s=5.0, hopeless=4)
_FOREVER = "while :; do sleep 0.05; done"


def _spec(name, script, **more):
    return ChildSpec(name=name, argv=("/bin/sh", "-c", script), env={"PATH": os.defpath}, **more)


class _House:
    """A supervisor at work, and what it said."""

    def __init__(self, place, pauses=_FAST):
        self.said = []
        self.place = place
        self.supervisor = Supervisor(
            log_dir=place, lifeline=make_lifeline(), say=self.said.append, pauses=pauses
        )

    async def __aenter__(self):
        self._keeping = asyncio.create_task(self.supervisor.keep())
        return self

    async def __aexit__(self, *_):
        self._keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeping
        self.supervisor.hurry()
        await self.supervisor.stop()

    def count(self, name):
        """How often a child that writes one line at its start was started."""
        path = self.place / f"{name}.log"
        return len(path.read_text().splitlines()) if path.exists() else 0


async def _until(is_so, timeout_s=15.0):
    async with asyncio.timeout(timeout_s):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


async def _never():
    return False


def test_pauses_double_up_to_a_bound():
    pauses = Pauses()
    assert [restart_pause_s(n, pauses) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


async def test_a_child_that_dies_is_started_again(place):
    async with _House(place) as house:
        house.supervisor.add(_spec("relay", _FOREVER))
        first = house.supervisor.pid("relay")
        os.kill(first, signal.SIGKILL)
        await _until(lambda: house.supervisor.pid("relay") not in (None, first))
        assert house.said == [f"relay: ended (SIGKILL), starting it again; its log is {place}/relay.log"]


async def test_a_child_that_keeps_failing_is_started_with_growing_pauses_and_said_once(place):
    async with _House(place) as house:
        house.supervisor.add(_spec("worker", "date +%s.%N; echo no database >&2; exit 1"))
        await _until(lambda: house.count("worker") >= 12)
    lines = (place / "worker.log").read_text().splitlines()
    times = [float(line) for line in lines if line[0].isdigit()]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    # A busy machine adds to each: the shortest of the first against the longest of the last.
    assert max(gaps[-3:]) > min(gaps[:3])
    assert sum("starting it again" in text for text in house.said) == 1
    assert "worker: | no database" in house.said


async def test_a_child_that_stays_up_is_well_again(place):
    script = f"test -e {place}/mark && {{ {_FOREVER}; }}; touch {place}/mark; exit 1"
    async with _House(place) as house:
        house.supervisor.add(_spec("beat", script))
        await _until(lambda: "beat: stable again" in house.said)
        os.kill(house.supervisor.pid("beat"), signal.SIGKILL)
        await _until(lambda: sum("starting it again" in text for text in house.said) == 2)


async def test_a_program_that_cannot_be_started_is_tried_again(place):
    program = place / "program"
    async with _House(place) as house:
        house.supervisor.add(ChildSpec("console", (str(program),), {}))
        await _until(lambda: any("cannot be started" in text for text in house.said))
        program.write_text("#!/bin/sh\nexec sleep 60\n")
        program.chmod(0o755)
        await _until(lambda: house.supervisor.pid("console"))


async def test_waiting_ends_when_every_child_is_ready(place):
    async def ready():
        return (place / "ready").exists()

    async with _House(place) as house:
        house.supervisor.add(_spec("a", f"sleep 0.1; touch {place}/ready; {_FOREVER}", ready=ready))
        house.supervisor.add(_spec("b", _FOREVER))
        await house.supervisor.wait_ready("a", "b", timeout_s=10)
        assert (place / "ready").exists()


async def test_waiting_for_a_child_that_keeps_failing_is_given_up_with_its_last_words(place):
    async with _House(place) as house:
        house.supervisor.add(_spec("relay", "echo no such table; exit 1", ready=_never))
        with pytest.raises(RunFailed, match=r"relay cannot be started\nno such table"):
            await house.supervisor.wait_ready("relay", timeout_s=10)


async def test_waiting_has_a_limit(place):
    async with _House(place) as house:
        house.supervisor.add(_spec("relay", f"echo still loading; {_FOREVER}", ready=_never))
        with pytest.raises(RunFailed, match=r"not ready within 0.3 s\nstill loading"):
            await house.supervisor.wait_ready("relay", timeout_s=0.3)


async def test_a_child_runs_only_while_it_is_wanted(place):
    async with _House(place) as house:
        house.supervisor.add(_spec("practice", f"echo started; {_FOREVER}"), wanted=False)
        await asyncio.sleep(0)
        assert house.supervisor.pid("practice") is None
        house.supervisor.want("practice", True)
        house.supervisor.want("practice", True)
        await _until(lambda: house.count("practice") == 1)
        pid = house.supervisor.pid("practice")
        house.supervisor.want("practice", False)
        await _until(lambda: not lives(pid))
        house.supervisor.want("practice", True)
        await _until(lambda: house.count("practice") == 2)


async def test_stages_end_one_after_the_other(place):
    def spec(name, stage):
        return _spec(name, f'trap "date +%s.%N; exit" TERM; touch {place}/{name}; {_FOREVER}', stage=stage)

    async with _House(place) as house:
        for name, stage in (("servers", 3), ("relay", 0), ("worker", 1)):
            house.supervisor.add(spec(name, stage))
        await _until(lambda: all((place / name).exists() for name in ("servers", "relay", "worker")))
        await house.supervisor.stop()
    ends = [float((place / f"{name}.log").read_text()) for name in ("relay", "worker", "servers")]
    assert ends == sorted(ends)
    assert house.said == []


async def test_a_child_that_drains_is_waited_for(place):
    drain = f"trap 'sleep 0.4; echo drained; exit' TERM; touch {place}/up; {_FOREVER}"
    async with _House(place) as house:
        house.supervisor.add(_spec("relay", drain, stop_s=20))
        await _until((place / "up").exists)
        await house.supervisor.stop()
    assert (place / "relay.log").read_text() == "drained\n"


async def test_a_child_that_does_not_end_is_killed(place):
    async with _House(place) as house:
        stubborn = f"trap '' TERM; touch {place}/up; {_FOREVER}"
        house.supervisor.add(_spec("relay", stubborn, stop_s=0.2))
        await _until((place / "up").exists)
        await house.supervisor.stop()
        assert house.supervisor.pid("relay") is None
    assert house.said == ["relay: did not end in time, sent SIGKILL"]


async def test_a_second_request_shortens_the_drain(place):
    async with _House(place) as house:
        stubborn = f"trap '' TERM; touch {place}/up; {_FOREVER}"
        house.supervisor.add(_spec("relay", stubborn, stop_s=600, hurry_s=0.1))
        await _until((place / "up").exists)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(house.supervisor.stop())
            group.create_task(_hurry(house.supervisor))
        assert time.monotonic() - began < 60


async def test_nothing_is_started_again_once_the_house_ends(place):
    async with _House(place) as house:
        house.supervisor.add(_spec("worker", "echo started; exit 1"))
        await _until(lambda: house.count("worker") >= 2)
        await house.supervisor.stop()
        count = house.count("worker")
        await asyncio.sleep(0.5)
        assert house.count("worker") == count


async def test_a_command_runs_once(place):
    async with _House(place) as house:
        await house.supervisor.run(_spec("migrate", "echo done"), timeout_s=10)
        assert house.count("migrate") == 1
        with pytest.raises(RunFailed, match=r"migrate failed \(exit code 4\)\nno such column"):
            await house.supervisor.run(_spec("migrate", "echo no such column >&2; exit 4"), timeout_s=10)


async def test_a_command_that_takes_too_long_is_ended(place):
    async with _House(place) as house:
        with pytest.raises(RunFailed, match="took longer"):
            await house.supervisor.run(_spec("seed", f"echo $$; {_FOREVER}"), timeout_s=0.3)
    assert not lives(int((place / "seed.log").read_text()))


async def test_a_command_ends_when_its_start_is_called_off(place):
    async with _House(place) as house:
        running = asyncio.create_task(
            house.supervisor.run(_spec("seed", f"echo $$; {_FOREVER}"), timeout_s=60)
        )
        await _until(lambda: house.count("seed"))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not lives(int((place / "seed.log").read_text()))


async def _hurry(supervisor):
    await asyncio.sleep(0.1)
    supervisor.hurry()
