"""A real inference engine as a process of its own: llama.cpp's server, over a small model with random weights.

It reads prompts, keeps what it has read (a prompt whose beginning it knows is answered many times sooner, and says so
in `prompt_tokens_details.cached_tokens`), writes token by token, and stops when nobody listens. It finds out that
nobody listens when it writes, so a prompt is read to its end, and a plain answer written to its end, for nobody.

It has four slots, each with the model's whole context, and works on one thread, so that the time it takes is a matter
of how much it has to do. It always chooses the likeliest token.
"""

import importlib.util
import json
import platform
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.fakes.noise_model import CONTEXT_TOKENS, write_model

ROOT = Path(__file__).resolve().parents[2]
SLOTS = 4
# Where a wheel exists, it is installed with the other tools of the tests (pyproject.toml).
HAS_WHEEL = (sys.platform, platform.machine()) in {
    ("linux", "x86_64"),
    ("linux", "aarch64"),
    ("darwin", "arm64"),
}
NO_WHEEL = f"xllamacpp has no wheel for {sys.platform} on {platform.machine()}"

__all__ = ["HAS_WHEEL", "NO_WHEEL", "SLOTS", "EngineProcess"]


class EngineProcess:
    """The engine on a free port; `url` is a base address as an upstream has it. `folder` takes its model and its log."""

    def __init__(self, folder: Path) -> None:
        assert importlib.util.find_spec("xllamacpp"), "xllamacpp is not installed: make .venv/test.stamp"
        model = folder / "noise.gguf"
        write_model(model)
        self._log = folder / "engine.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.engine_process", str(model)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line.startswith("listening: "), f"the engine did not start:\n{self._log.read_text()}"
        self.root = line.removeprefix("listening: ").strip()
        self.url = f"{self.root}/v1"
        self.port = int(self.root.rpartition(":")[2])

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.root + path, timeout=10) as answer:
            found: str = answer.read().decode()
            return found

    def slots(self) -> list[dict[str, Any]]:
        """What each slot does; `is_processing` and, while it does, `next_token`."""
        found: list[dict[str, Any]] = json.loads(self._get("/slots"))
        return found

    def busy(self) -> int:
        """How many slots are at work."""
        return sum(slot["is_processing"] for slot in self.slots())

    def counters(self) -> dict[str, int]:
        """Tokens since the start: `prompt` (read, without what was cached), `cached`, `written`."""
        lines = [line.split(" ") for line in self._get("/metrics").splitlines() if not line.startswith("#")]
        found = {name.removeprefix("llamacpp:"): value for name, value in lines if value}
        return {
            "prompt": int(found["prompt_tokens_total"]),
            "cached": int(found["prompt_tokens_cached_total"]),
            "written": int(found["tokens_predicted_total"]),
        }

    def wait_idle(self, *, within_s: float = 5.0) -> float:
        """Seconds until no slot is at work. Fails when that is not in time."""
        began = time.perf_counter()
        while self.busy():
            assert time.perf_counter() - began < within_s, f"still at work: {self.slots()}"
            time.sleep(0.002)
        return time.perf_counter() - began

    def close(self) -> None:
        self._process.terminate()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(20)


def serve(model: str) -> None:
    """Serve until standard input is closed, which it also is when whoever started this is gone."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = CONTEXT_TOKENS * SLOTS
    params.n_parallel = SLOTS
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    # Only what a slot itself remembers counts as cached; nothing is put aside in memory.
    params.cache_ram_mib = 0
    params.sampling.temp = 0.0
    params.sse_ping_interval = 1
    params.endpoint_metrics = params.endpoint_slots = True
    params.ui = params.warmup = False
    params.port = 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"listening: {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1])
