"""A real relay process for the tests: `gateway.serve relay` on a socket of our own, over the session's servers."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY_S = 30.0


class RelayProcess:
    """One or more relay processes that share a listening socket. `start` waits until they answer.

    `command` is what Python runs, in place of the product's own server.
    """

    def __init__(
        self,
        var_dir: Path,
        env: Mapping[str, str] | None = None,
        *,
        workers: int = 1,
        command: Sequence[str] = ("-m", "gateway.serve", "relay"),
    ) -> None:
        self.var_dir = var_dir
        self._command = command
        self._workers = workers
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(1024)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._env = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
            "VAR_DIR": str(var_dir),
            "PORT": str(self.port),
            **(env or {}),
        }

    @property
    def log(self) -> str:
        """What the processes have said."""
        return (self.var_dir / "relay.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self.processes[0].pid

    def launch(self) -> None:
        """Start the processes that are not running."""
        (self.var_dir / "run").mkdir(parents=True, exist_ok=True)
        running = [process for process in self.processes if process.poll() is None]
        for _ in range(self._workers - len(running)):
            with (self.var_dir / "relay.log").open("ab") as log:
                fd = self._socket.fileno()
                running.append(
                    subprocess.Popen(
                        [sys.executable, *self._command, "--fd", str(fd)],
                        env=self._env,
                        pass_fds=[fd],
                        stdout=log,
                        stderr=log,
                        cwd=ROOT,
                    )
                )
        self.processes = running

    def start(self) -> None:
        """Start the processes that are not running, and wait until one is ready."""
        self.launch()
        deadline = time.monotonic() + READY_S
        while not self.is_ready():
            if time.monotonic() > deadline or self.processes[0].poll() is not None:
                raise AssertionError(f"the relay did not become ready:\n{self.log}")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(json.load(answer)["status"] == "ok")
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def stop(self, number: signal.Signals = signal.SIGTERM, *, wait_s: float = 30) -> list[int]:
        """Send the signal to every process and wait for the end; their exit codes."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)
        return [process.wait(wait_s) for process in self.processes]

    def hold(self) -> None:
        """Stop them where they stand."""
        for process in self.processes:
            process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """Stop what still runs and give the port back."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(10)
        self._socket.close()
