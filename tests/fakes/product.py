"""The whole product as a person runs it: `manage.py up` in a folder of its own, with its own servers."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
# What a test machine may have set and the product must not see.
FOREIGN = re.compile(
    r"^(DATABASE_URL|REDIS_URL|LIMITS_REDIS_URL|VAR_DIR|HOST|PORT|CONFIG|PUBLIC_URL|TRUSTED_PROXIES|EMAIL_URL|PRACTICE.*"
    r"|WEB_WORKERS|DRAIN_S|SECRET_KEY.*|FIELD_KEYS.*|KEY_PEPPER.*|DJANGO_SETTINGS_MODULE|TEST_SERVERS|PYTEST_.*|CONSOLE_SOCKET)$"
)


class Product:
    """Start it, ask it, stop it. What it printed is in `printed`."""

    def __init__(
        self, folder: Path, *, env: Mapping[str, str] | None = None, config: str | None = None
    ) -> None:
        self.folder = folder
        self.var_dir = folder / "var"
        self.printed: list[str] = []
        self.url = ""
        self.key = ""
        self.login = ""
        self.password = ""
        self.start_s = 0.0
        self._env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        self._env |= {
            "VAR_DIR": str(self.var_dir),
            "PORT": "0",
            "WEB_WORKERS": "1",
            "DRAIN_S": "5",
            **(env or {}),
        }
        if config is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.yaml").write_text(config)
            self._env["CONFIG"] = str(folder / "config.yaml")
        self.process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> "Product":
        """Start and wait for `ready:`, and on a first start for login and key."""
        began = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        errors = (self.folder / "stderr.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "up"],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.folder,
        )
        errors.close()
        lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self.process, lines), daemon=True)
        self._reader.start()
        deadline = began + START_S
        while not self.url:
            line = self._next(lines, deadline)
            self.printed.append(line)
            if line.startswith("ready: "):
                self.url = line.removeprefix("ready: ").strip()
        self.start_s = time.monotonic() - began
        settle = time.monotonic() + 1
        while (time.monotonic() < settle and not lines.empty()) or time.monotonic() < settle - 0.5:
            try:
                line = lines.get(timeout=0.1)
            except queue.Empty:
                continue
            if line is not None:
                self.printed.append(line)
        text = "".join(self.printed)
        if match := re.search(r"sk-yz-[A-Za-z0-9-]+", text):
            self.key = match.group()
        if match := re.search(r"login[: ]+(\S+@\S+)\s.*?password[: ]+(\S+)", text, re.DOTALL):
            self.login, self.password = match.groups()
        return self

    def _read(self, process: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    def _next(self, lines: "queue.Queue[str | None]", deadline: float) -> str:
        try:
            line = lines.get(timeout=max(0.1, deadline - time.monotonic()))
        except queue.Empty:
            line = None
        if line is None:
            raise AssertionError(f"the product did not start:\n{''.join(self.printed)}\n{self.errors}")
        return line

    @property
    def errors(self) -> str:
        """What it said on standard error, and the logs of its children."""
        said = (self.folder / "stderr.log").read_text(errors="replace")
        for log in sorted((self.var_dir / "log").glob("*.log")):
            said += f"\n--- {log.name}\n{log.read_text(errors='replace')[-3000:]}"
        return said

    def manage(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`manage.py` beside the running product, as an operator does."""
        return subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env={**self._env, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=self.folder,
        )

    def apply(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        """`manage.py apply`; raises if it refuses."""
        path = self.folder / f"apply-{time.monotonic_ns()}.yaml"
        path.write_text(text)
        done = self.manage("apply", str(path), *options)
        if done.returncode:
            raise AssertionError(f"apply refused:\n{done.stdout}\n{done.stderr}")
        return done

    def ask(
        self,
        path: str,
        *,
        key: str | None = None,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """One request; status and JSON (or text) of the answer."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("authorization", f"Bearer {key or self.key}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, data, timeout=60) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            return status, text

    def record(self, call_id: str, *, key: str | None = None, within_s: float = 5) -> dict[str, Any]:
        """The call's record, as soon as the control API has it."""
        deadline = time.monotonic() + within_s
        while True:
            status, record = self.ask(f"/api/v1/calls/{call_id}/", key=key)
            if status == 200:
                return dict(record)
            if time.monotonic() > deadline:
                raise AssertionError(f"no record of {call_id}: {status} {record}")
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, wait_s: float = 60) -> int:
        """Ask it to stop and wait; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(wait_s)

    def close(self) -> None:
        """Stop, whatever state it is in. What it still says is read to its end."""
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        if self._reader is not None:
            self._reader.join(10)
