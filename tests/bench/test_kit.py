"""The load kit itself: what it computes, which processes it sees, and that its programs compile and agree."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

HERE = Path(__file__).resolve().parent
NAMES = ("processes", "bench", "compare", "client_gone", "instance", "run")


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The kit's modules. They are scripts, so they find each other on the path and leave no trace."""
    monkeypatch.syspath_prepend(str(HERE))
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


def make_result(rps: float, cpu_ms: float, usage: float = 1.0) -> dict[str, object]:
    stream = {"added_ttft_p50_ms": 1.0, "cpu_us_per_event": 50.0, "with_usage": usage, "with_done": 1.0}
    return {
        "max": {"rps": rps, "cpu_ms_per_request": cpu_ms},
        "paced_streams": {"100": stream},
        "errors": 0,
        "calls": 10,
    }


def test_medians_and_ratios_are_by_name(kit) -> None:
    results = {
        "relay": [make_result(10, 0.2), make_result(30, 0.1), make_result(20, 0.3)],
        "nginx": [make_result(100, 0.02)],
    }
    medians, better = kit["compare"].compare(results)
    assert medians["max/rps"] == {"relay": 20, "nginx": 100}
    assert better["max/rps"] == {"nginx": 0.2}
    assert better["max/cpu_ms_per_request"] == {"nginx": 0.1}
    assert "prompt_200kB/rps" not in medians


def test_the_summary_divides_the_relay_by_its_peers(kit) -> None:
    results = {"relay": [make_result(20, 0.2)], "nginx": [make_result(100, 0.02)]}
    summary = kit["run"].summarise(results, {"slow_reader_growth_mib": 2.0})
    assert summary["relay_divided_by"]["nginx"] == {
        "requests_per_s": 0.2,
        "cpu_per_request": 10.0,
        "cpu_per_chunk_100_streams": 1.0,
        "added_ttft_p50_100_streams": 1.0,
    }
    assert summary["added_ttft_ms"] == {"100": {"p50": 1.0, "p99": None}}
    assert summary["slow_reader_growth_mib"] == 2.0
    assert (summary["errors"], summary["peer_errors"]) == (0, {"nginx": 0})
    assert summary["least_share_with_usage_and_done"] == 1.0


SOUND = {
    "errors": 0,
    "usage_rows": 10,
    "calls": 10,
    "relay_restarted": False,
    "least_share_with_usage_and_done": 1.0,
    "upstream_stopped_after_s_mid_stream": 0.02,
    "upstream_stopped_after_s_before_first_byte": 9.0,
}


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, 0),
        ({"errors": 1}, 1),
        ({"usage_rows": 9}, 1),
        ({"usage_rows": 11}, 1),
        ({"relay_restarted": True}, 1),
        ({"least_share_with_usage_and_done": 0.99}, 1),
        ({"least_share_with_usage_and_done": None}, 0),
        ({"upstream_stopped_after_s_mid_stream": None, "usage_rows": 0}, 2),
    ],
)
def test_a_run_is_sound_or_says_why_not(kit, changes: dict[str, object], faults: int) -> None:
    assert len(kit["run"].find_faults(SOUND | changes)) == faults


def test_the_apply_file_names_what_the_bench_calls(kit) -> None:
    declared = yaml.safe_load(kit["instance"].write_apply_file(4321))
    assert declared["upstreams"][0]["base_url"] == "http://127.0.0.1:4321/v1"
    assert declared["upstreams"][0]["allow_private"] is True
    model = declared["models"][0]
    assert (model["name"], model["routes"][0]["upstream"]) == ("fake-model", declared["upstreams"][0]["name"])
    assert float(model["price"]["input"]) > 0
    organization = declared["organizations"][0]
    assert organization["balance"] == {"CNY": "1000000"}
    assert 20 <= len(organization["keys"][0]["value"]) <= 200
    assert organization["keys"][0]["member"] == organization["members"][0]["email"]


# Stands in for `manage.py up`: one child that looks like a relay process, and a clean end.
SUPERVISOR = """
import os, pathlib, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "-m", "gateway.serve", "relay"])
def stop(*_):
    child.kill()
    child.wait()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(os.environ["VAR_DIR"]).mkdir()
if "price" not in pathlib.Path(os.environ["CONFIG"]).read_text() or "DATABASE_URL" in os.environ:
    stop()
print("some words first\\nready: http://127.0.0.1:" + os.environ["PORT"], flush=True)
while True:
    time.sleep(1)
"""


def test_an_instance_is_started_pinned_watched_and_stopped(kit, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/")
    (tmp_path / "manage.py").write_text(SUPERVISOR)
    cpus = sorted(os.sched_getaffinity(0))
    instance = kit["instance"].Instance(4321, cpus[0], cpus[-1], print, root=tmp_path)
    try:
        instance.start()
        assert len(instance.relay_pids) == 1
        assert os.sched_getaffinity(instance.relay_pids[0]) == {cpus[0]}
        others = set(instance.processes()) - set(instance.relay_pids)
        assert others
        assert all(os.sched_getaffinity(pid) == {cpus[-1]} for pid in others)
        assert not instance.relay_restarted()
        os.kill(instance.relay_pids[0], 9)
        while kit["processes"].command_line(instance.relay_pids[0]):
            pass
        assert instance.relay_restarted()
    finally:
        instance.stop()
        instance.remove()
    assert not instance.folder.exists()


def test_an_instance_that_does_not_start_says_why(kit, tmp_path: Path) -> None:
    (tmp_path / "manage.py").write_text("raise SystemExit('the port is taken')")
    instance = kit["instance"].Instance(4321, None, None, print, root=tmp_path)
    with pytest.raises(kit["instance"].InstanceError, match="the port is taken"):
        instance.start()
    instance.stop()
    instance.remove()


def test_a_bench_that_fails_counts_as_an_error(kit) -> None:
    result = (
        kit["compare"]
        .Plan(None, None)
        .bench("http://127.0.0.1:1", "k", "m", "--skip", "x", "--format", "none")
    )
    assert (result["errors"], result["calls"]) == (1, 0)


def test_a_process_is_seen_with_its_children_and_moved_to_a_cpu(kit, tmp_path: Path) -> None:
    processes = kit["processes"]
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()', 'mark of the child'])"
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdin=subprocess.PIPE)
    try:
        children: list[int] = []
        while not children:
            assert parent.poll() is None
            family = processes.descendants([parent.pid])
            children = [pid for pid in family if processes.command_line(pid).endswith("mark of the child")]
        assert set(children) <= set(processes.working_below(tmp_path))
        cpu = min(os.sched_getaffinity(0))
        processes.pin(children, cpu)
        assert os.sched_getaffinity(children[0]) == {cpu}
        assert processes.pss_mib(family) > 1
        assert processes.cpu_s(family) >= 0
    finally:
        parent.communicate(b"\n")
    assert processes.descendants([parent.pid]) == []
    assert processes.command_line(parent.pid) == ""


def test_a_name_with_brackets_does_not_hide_the_parent(kit) -> None:
    assert kit["processes"].parent_in("42 (a) S 1) S 7 42 42 0") == 7


def test_a_listener_is_found_by_its_port(kit) -> None:
    processes = kit["processes"]
    port = processes.free_port()
    assert processes.listeners(port) == []
    assert not processes.is_listening(port)


def test_load_generator_and_upstream_agree_on_what_was_sent(kit, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        with pytest.raises(FileNotFoundError):
            kit["bench"].build(tmp_path)
        return
    upstream, loadgen = kit["bench"].build(tmp_path)
    port = kit["processes"].free_port()
    running = kit["bench"].start_upstream(upstream, port, None)
    try:
        command = [loadgen, "-p", str(port), "-d", "0.3", "-w", "0.1", "-c", "4"]
        plain = json.loads(subprocess.check_output(command))
        assert plain["started"] > plain["ok"] > 0
        assert (plain["errors"], plain["bad_status"], plain["unfinished"]) == (0, 0, 0)
        streams = json.loads(
            subprocess.check_output([*command, "-N", "8", "-w", "0", "-s", "-x", "ttft=5,gap=1,n=10"])
        )
        assert (streams["started"], streams["ok"]) == (8, 8)
        assert (streams["events"], streams["with_usage"], streams["with_done"]) == (80, 8, 8)
        refused = json.loads(subprocess.check_output([*command, "-N", "3", "-w", "0", "-x", "status=503"]))
        assert (refused["started"], refused["bad_status"]) == (3, 3)
    finally:
        running.terminate()
        running.wait()


def test_without_a_compiler_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(HERE / "run.py")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert json.loads(run.stdout) == {"faults": ["gcc is not installed"]}
    assert run.stderr.count("\n") == 1
