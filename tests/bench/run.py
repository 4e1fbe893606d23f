#!/usr/bin/env python3
"""Measure the product against its peers: what `make bench` runs. Needs Linux and gcc; nginx where installed.

    python tests/bench/run.py [--quick] [--rounds 3] [--peers nginx,litellm,portkey] [--keep]

Starts a fresh instance (one relay process alone on the first CPU, everything else on the second), runs
bench.py against it and against each installed peer, round by round, then looks whether upstream calls stop
when clients go away and what a client costs that does not read, and compares the usage records with the calls
made. Prints one JSON object; progress goes to stderr.

Ends with 0 when every call was answered and recorded, 1 when not, 2 when nothing could be measured. How fast
it was never decides: figures of one machine are no verdict about another.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import client_gone
from bench import build, start_upstream
from compare import PEERS, Plan, Result, compare, is_installed, read_figure
from instance import KEY, MODEL, Instance, InstanceError
from processes import free_port

FULL = {"seconds": 2.0, "streams": "20,100,500", "skip": "light"}
QUICK = {"seconds": 1.0, "streams": "20,100", "skip": "light,idle,streammax"}
_STARTED = time.monotonic()

# What the summary calls the ratios against a peer, and where they come from.
_RATIOS = {
    "requests_per_s": "max/rps",
    "cpu_per_request": "max/cpu_ms_per_request",
    "requests_per_s_200kB": "prompt_200kB/rps",
    "cpu_per_chunk_100_streams": "paced_streams/100/cpu_us_per_event",
    "cpu_per_chunk_500_streams": "paced_streams/500/cpu_us_per_event",
    "added_ttft_p50_100_streams": "paced_streams/100/added_ttft_p50_ms",
}


def tell(words: str) -> None:
    """A line of progress."""
    print(f"[{time.monotonic() - _STARTED:5.0f} s] {words}", file=sys.stderr, flush=True)


def choose_cpus() -> tuple[int | None, int | None]:
    """The CPU of the relay and that of everything else; nothing is pinned where there is only one."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2 or shutil.which("taskset") is None:
        tell("nothing is pinned: this takes two CPUs and taskset")
        return None, None
    return cpus[0], cpus[1]


def choose_peers(wanted: str) -> list[str]:
    """Those of the wanted peers that are installed; says which are not."""
    names = [name for name in wanted.split(",") if name]
    missing = [name for name in names if not is_installed(name)]
    for name in missing:
        tell(f"{name} is not installed: no comparison with it")
    return [name for name in names if name not in missing]


def measure_rounds(plan: Plan, instance: Instance, peers: list[str], rounds: int) -> dict[str, list[Result]]:
    """bench.py against the relay and each peer in turn, as often as asked."""
    results: dict[str, list[Result]] = {"relay": []}
    pids = ",".join(map(str, instance.relay_pids))
    for number in range(1, rounds + 1):
        tell(f"round {number} of {rounds}: relay")
        instance.pin()
        results["relay"].append(plan.bench(instance.url, KEY, MODEL, "--pids", pids))
        for name in peers:
            tell(f"round {number} of {rounds}: {name}")
            try:
                results.setdefault(name, []).append(plan.bench_peer(name))
            except subprocess.CalledProcessError:
                tell(f"{name} did not start")
    return results


def check_soundness(instance: Instance, upstream_port: int) -> dict[str, float | None]:
    """Whether upstream calls stop when clients go away, and what a slow reader costs."""
    tell("clients that go away, and one that does not read")
    target = client_gone.Target(instance.port, instance.relay_pids, KEY, MODEL, upstream_port)
    return client_gone.check(target)


def summarise(results: dict[str, list[Result]], soundness: dict[str, float | None]) -> Result:
    """Pure. The figures that the product is judged by, before the records are counted."""
    medians, _ = compare(results)
    ratios: dict[str, Result] = {}
    for words, path in _RATIOS.items():
        row = medians.get(path, {})
        ours = row.get("relay")
        for name, theirs in row.items():
            if name != "relay" and ours is not None and theirs:
                ratios.setdefault(name, {})[words] = round(ours / theirs, 3)
    relay = results["relay"]
    streams = sorted({count for run in relay for count in run.get("paced_streams", {})}, key=int)
    shares = [
        read_figure(run, f"paced_streams/{count}/{share}")
        for run in relay
        for count in streams
        for share in ("with_usage", "with_done")
    ]
    return {
        "relay_divided_by": ratios,
        "added_ttft_ms": {
            count: {
                quantile: medians.get(f"paced_streams/{count}/added_ttft_{quantile}_ms", {}).get("relay")
                for quantile in ("p50", "p99")
            }
            for count in streams
        },
        "mib_per_1000_streams": medians.get("idle_1000_streams/mib_per_1000", {}).get("relay"),
        **soundness,
        "errors": sum(run.get("errors", 1) for run in relay),
        "peer_errors": {
            name: sum(run.get("errors", 1) for run in runs)
            for name, runs in results.items()
            if name != "relay"
        },
        "least_share_with_usage_and_done": min(
            (share for share in shares if share is not None), default=None
        ),
        "median": medians,
    }


def find_faults(report: Result) -> list[str]:
    """Pure. Why the run is not sound, in words; nothing here depends on speed."""
    faults = []
    if report["errors"]:
        faults.append(f"{report['errors']} calls failed")
    if report["usage_rows"] != report["calls"]:
        faults.append(f"{report['usage_rows']} usage records for {report['calls']} calls")
    if report["relay_restarted"]:
        faults.append("the relay process was started anew during the run")
    share = report["least_share_with_usage_and_done"]
    if share is not None and share < 1:
        faults.append("streams ended without their usage or their end marker")
    for name in ("mid_stream", "before_first_byte"):
        if report[f"upstream_stopped_after_s_{name}"] is None:
            faults.append(f"upstream calls went on after their clients had gone ({name})")
    return faults


def run(options: argparse.Namespace, relay_cpu: int | None, load_cpu: int | None) -> int:
    peers = choose_peers(options.peers)
    upstream_program, _ = build(options.build)
    upstream_port = free_port()
    upstream = start_upstream(upstream_program, upstream_port, load_cpu)
    instance = Instance(upstream_port, relay_cpu, load_cpu, tell)
    settings: dict[str, Any] = QUICK if options.quick else FULL
    plan = Plan(relay_cpu, load_cpu, upstream_port, options.build, **settings)
    rounds = options.rounds or (1 if options.quick else 3)
    try:
        tell("starting the product")
        instance.start()
        tell(f"ready on {instance.url}, relay process {instance.relay_pids[0]}")
        results = measure_rounds(plan, instance, peers, rounds)
        soundness = check_soundness(instance, upstream_port)
        report = describe(plan, rounds) | summarise(results, soundness)
        report["calls"] = sum(one.get("calls", 0) for one in results["relay"]) + client_gone.CALLS
        report["usage_rows_by_status"] = instance.settled_rows(report["calls"])
        report["usage_rows"] = sum(report["usage_rows_by_status"].values())
        report["relay_restarted"] = instance.relay_restarted()
        report["faults"] = find_faults(report)
    except InstanceError as exc:
        tell(str(exc))
        print(json.dumps({"faults": [str(exc).splitlines()[0]]}))
        return 2
    finally:
        tell("stopping")
        instance.stop()
        upstream.terminate()
        upstream.wait()
        if options.keep:
            tell(f"kept: {instance.folder}")
        else:
            instance.remove()
    for fault in report["faults"]:
        tell(f"fault: {fault}")
    print(json.dumps(report, indent=1))
    return 1 if report["faults"] else 0


def describe(plan: Plan, rounds: int) -> Result:
    """What was run, and on what."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "pinned": plan.relay_cpu is not None,
        "rounds": rounds,
        "seconds": plan.seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the product against its peers.")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, help="default 3, or 1 with --quick")
    parser.add_argument("--peers", default="nginx,litellm,portkey", help=f"comma list of {', '.join(PEERS)}")
    parser.add_argument("--keep", action="store_true", help="leave the instance's folder for a look")
    parser.add_argument("--build", type=Path, default=None, help="where the compiled programs are kept")
    options = parser.parse_args()
    if shutil.which("gcc") is None:
        tell("gcc is not installed: nothing can be measured")
        print(json.dumps({"faults": ["gcc is not installed"]}))
        return 2
    options.build = options.build or Path(__file__).resolve().parents[2] / "var" / "bench"
    return run(options, *choose_cpus())


if __name__ == "__main__":
    sys.exit(main())
