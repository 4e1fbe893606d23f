"""A fresh instance of the product for measurements: started, pinned, counted, stopped.

The instance lives in a temporary folder with embedded servers, one relay process and an apply file that names
one upstream, the fake one. Everything it starts stays on one CPU, and its relay process alone on another.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from processes import command_line, descendants, free_port, pin, working_below

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-yz-bench-0000000000000000000000000000000000000000"
MODEL = "fake-model"
RELAY_MARK = "gateway.serve relay"
START_LIMIT_S = 300
STOP_LIMIT_S = 60
# Records reach the database within a second; a full second without a new one means that no more will come.
SETTLE_S = 1.0
SETTLE_LIMIT_S = 60
# Quiet is when all processes together use less than this share of a CPU for so long.
QUIET_SHARE = 0.1
QUIET_S = 1.5
QUIET_LIMIT_S = 45
# What would make the instance something else than a fresh one with its own servers.
_NOT_INHERITED = (
    "DATABASE_URL",
    "REDIS_URL",
    "LIMITS_REDIS_URL",
    "PUBLIC_URL",
    "TRUSTED_PROXIES",
    "EMAIL_URL",
    "DJANGO_SETTINGS_MODULE",
)


class InstanceError(RuntimeError):
    """The product did not start, or one of its processes is not there."""


def write_apply_file(upstream_port: int) -> str:
    """Pure. The apply file: one upstream, one model that costs something, one organization that can pay."""
    return f"""upstreams:
  - name: fake
    protocol: openai
    base_url: http://127.0.0.1:{upstream_port}/v1
    credential: sk-upstream
    allow_private: true
    probe: false
models:
  - name: {MODEL}
    kind: chat
    context_tokens: 262144
    price: {{currency: CNY, input: "4.00", cached_input: "1.00", output: "16.00"}}
    routes:
      - {{upstream: fake, upstream_model: {MODEL}}}
organizations:
  - name: bench
    title: Bench
    balance: {{CNY: "1000000"}}
    members:
      - {{email: bench@example.com, role: owner}}
    keys:
      - {{name: bench, value: {KEY}, member: bench@example.com}}
"""


class Instance:
    """The running product. `relay_cpu` and `other_cpu` are None where nothing can be pinned."""

    def __init__(
        self,
        upstream_port: int,
        relay_cpu: int | None,
        other_cpu: int | None,
        tell: Callable[[str], None],
        *,
        root: Path = ROOT,
    ) -> None:
        self._root = root
        self.port = free_port()
        self._relay_cpu = relay_cpu
        self._other_cpu = other_cpu
        self._tell = tell
        self.folder = Path(tempfile.mkdtemp(prefix="relay-bench-"))
        # Started as root, the embedded servers run as somebody else and must get in.
        self.folder.chmod(0o755)
        self.var = self.folder / "var"
        self.log = self.folder / "up.log"
        config = self.folder / "apply.yaml"
        config.write_text(write_apply_file(upstream_port))
        self._environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        self._environment |= {
            "VAR_DIR": str(self.var),
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "WEB_WORKERS": "1",
            "PRACTICE": "0",
            "CONFIG": str(config),
            "DRAIN_S": "2",
            "PYTHONUNBUFFERED": "1",
        }
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.relay_pids: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait for the line `ready:`. Raises InstanceError with the end of the log."""
        with self.log.open("wb") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=self._root,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        if self._other_cpu is not None:
            pin([self._supervisor.pid], self._other_cpu)
        limit = time.monotonic() + START_LIMIT_S
        while not re.search(r"^ready: ", self.log.read_text(errors="replace"), re.MULTILINE):
            if self._supervisor.poll() is not None or time.monotonic() > limit:
                raise InstanceError(f"the product did not become ready:\n{self.log_end()}")
            time.sleep(0.1)
        self.relay_pids = self.find_relay()
        if len(self.relay_pids) != 1:
            raise InstanceError(f"one relay process was asked for, there are {len(self.relay_pids)}")
        self.pin()
        self.wait_quiet()

    def wait_quiet(self) -> None:
        """Until what starts after `ready:` (worker, beat) has loaded its code: it would share the load's CPU."""
        limit = time.monotonic() + QUIET_LIMIT_S
        used = self._cpu_s()
        while time.monotonic() < limit:
            time.sleep(QUIET_S)
            before, used = used, self._cpu_s()
            if used - before < QUIET_SHARE * QUIET_S:
                return
        self._tell("the instance is still busy with itself: measured all the same")

    def _cpu_s(self) -> float:
        """Processor time that all processes of the instance have used."""
        ticks = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def processes(self) -> list[int]:
        """Everything that belongs to the instance, also what has left the supervisor."""
        roots = [self._supervisor.pid] if self._supervisor is not None else []
        return descendants({*roots, *working_below(self.folder)})

    def find_relay(self) -> list[int]:
        """The relay processes, by their command line."""
        return [pid for pid in self.processes() if RELAY_MARK in command_line(pid)]

    def pin(self) -> None:
        """The relay alone on its CPU, everything else on the other one."""
        if self._relay_cpu is None or self._other_cpu is None:
            return
        relay = self.find_relay()
        pin([pid for pid in self.processes() if pid not in relay], self._other_cpu)
        pin(relay, self._relay_cpu)

    def relay_restarted(self) -> bool:
        """Whether the relay process that was started is no longer the one that serves."""
        return self.find_relay() != self.relay_pids

    def count_rows(self) -> dict[str, int]:
        """Usage records by status, read as the owner of the tables."""
        import psycopg

        address = json.loads((self.var / "run" / "servers.json").read_text())["database_url"]
        with psycopg.connect(address) as connection:
            connection.execute("SET ROLE relay_owner")
            rows = connection.execute("SELECT status, count(*) FROM billing_usagerecord GROUP BY status")
            return dict(rows.fetchall())

    def settled_rows(self, wanted: int) -> dict[str, int]:
        """Usage records by status once there are as many as wanted, or no more come."""
        limit = time.monotonic() + SETTLE_LIMIT_S
        rows = self.count_rows()
        while sum(rows.values()) < wanted and time.monotonic() < limit:
            before = rows
            time.sleep(SETTLE_S)
            rows = self.count_rows()
            if rows == before:
                self._tell(f"waiting for usage records: {sum(rows.values())} of {wanted}")
        return rows

    def log_end(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """SIGTERM to the supervisor; what is left after the limit is killed, with a word about it."""
        if self._supervisor is None:
            return
        everything = self.processes()
        self._supervisor.send_signal(signal.SIGTERM)
        try:
            self._supervisor.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._tell(f"the supervisor did not end within {STOP_LIMIT_S} s")
        left = [pid for pid in everything if command_line(pid)]
        if left:
            self._tell(f"killing what was left behind: {[command_line(pid)[:60] for pid in left]}")
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
