"""`manage.py up`: the whole product from one command, in the foreground.

THE ORDER OF A START (each step is a station of its own, see `gateway.start` and `gateway.embedded`):

    environment checked -> VAR_DIR locked -> socket bound -> embedded servers, where no URL is given -> roles
    -> prepare: migrate, seed, apply CONFIG -> gate open -> relay, console, practice answer -> worker, beat
    -> ``ready: URL``

Relay and console are started together with the servers: they load their code meanwhile, and wait at the gate
(`gateway.start.gate`), so that none serves before the schema is right.

From then on the supervisor keeps the children running, and starts and stops the practice provider as models
come and go. A stop (SIGTERM, SIGINT, SIGHUP) goes backwards: relay and console drain, worker and beat finish,
practice, and the servers last. A second request to stop, later than `SAME_REQUEST_S`, shortens the drain.

No Django is set up in this process: it has to stay small, single-threaded and without a database of its own.
Standard output carries the ready line and, on a first start, the login and the key that `seed` made; all else
goes to standard error and to ``VAR_DIR/log``.
"""

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway import env
from gateway.embedded import LaunchError, Postgres, Temporaries, Valkey
from gateway.embedded.home import socket_fits
from gateway.embedded.roles import RolesError, RolesMissing
from gateway.secret_store import write_private
from gateway.start.children import SERVER_STAGE, House, child_environment, manage
from gateway.start.database import see_to_roles, wait_for_database, wait_for_redis
from gateway.start.gate import Gate
from gateway.start.listen import host_header, listen, local_address, url_host
from gateway.start.practice import PracticeWatch, choose_port
from gateway.start.probe import is_page, is_ready
from gateway.supervisor import Lifeline, RunFailed, Supervisor, make_lifeline

__all__ = ["add_arguments", "main"]

# A signal to the whole process group arrives twice, once handed on by `make`; a person's second Ctrl-C comes later.
SAME_REQUEST_S = 0.5
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SERVERS_S = 600.0  # a database that recovers from a crash may take minutes
_PREPARE_S = 3600.0
_READY_S = 180.0
_PRACTICE_S = 3.0
_LOOK_S = 0.1
_LOCK_TRIES = 3
# Relay processes of a killed supervisor give the port back as soon as they have begun to drain.
_PORT_AFTER_KILL_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command; each is also a variable of the environment, which it overrides."""
    parser.add_argument("--host", help="address to listen on (HOST, 127.0.0.1)")
    parser.add_argument("--port", help="port to listen on (PORT, 8000)")
    parser.add_argument("--web-workers", metavar="N", help="relay processes (WEB_WORKERS, one for each core)")
    parser.add_argument("--config", metavar="FILE", help="a file to apply at the start (CONFIG)")
    parser.add_argument("--no-embedded", action="store_true", help="refuse to start servers of our own")


def main(argv: Sequence[str]) -> int:
    """Run until told to stop; the exit code. Errors are told in one line on standard error."""
    parser = argparse.ArgumentParser(prog="manage.py up", description="Run everything, in the foreground.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(options: argparse.Namespace) -> int:
    """`main` after the options are parsed."""
    # A stop before the first child: leave through the `finally`s.
    signal.signal(signal.SIGTERM, _leave)
    for name in ("host", "port", "web_workers", "config"):
        value = getattr(options, name)
        if value is not None:
            os.environ[name.upper()] = value
    try:
        env.check()
        var_dir = env.var_dir()
        _make_folders(var_dir)
        with _locked(var_dir / "run" / "up.lock") as after_kill:
            wait_s = _PORT_AFTER_KILL_S if after_kill else 0.0
            with contextlib.closing(listen(env.host(), env.port(), wait_s=wait_s)) as listener:
                return _Up(listener, var_dir, may_embed=not options.no_embedded).run()
    except RolesMissing as exc:
        _say(str(exc))
        _tell(f"{exc.sql}\n")
        return 1
    except (env.EnvError, LaunchError, RolesError, RunFailed) as exc:
        _say(str(exc))
        return 1
    except KeyboardInterrupt:
        return 0


class _Up:
    """One run of the product, from the bound socket to the last child."""

    def __init__(self, listener: socket.socket, var_dir: Path, *, may_embed: bool) -> None:
        self._listener = listener
        self._var_dir = var_dir
        self._run_dir = var_dir / "run"
        self._may_embed = may_embed
        self._root = env.project_root()
        self._lifeline: Lifeline = make_lifeline()
        self._supervisor = Supervisor(log_dir=var_dir / "log", lifeline=self._lifeline, say=_say)
        self._temporaries = Temporaries(self._run_dir)
        self._postgres: Postgres | None = None
        self._valkey: Valkey | None = None
        self._life: asyncio.Task[None] | None = None
        self._gate = Gate()
        self._asked_at: float | None = None
        self._setup_output: list[str] = []

    def run(self) -> int:
        """Start, stay, stop. Raises what stopped the start."""
        self._temporaries.remove()
        try:
            self._prepare_servers()
            asyncio.run(self._run())
        finally:
            self._gate.close()
            self._print_setup_output()
            (self._run_dir / "servers.json").unlink(missing_ok=True)
            self._temporaries.remove()
            self._lifeline.close()
        return 0

    def _prepare_servers(self) -> None:
        """Decide which servers are ours and make them ready to start; may take a moment on a first start."""
        if env.given_database_url() is None:
            self._require_embedding("DATABASE_URL")
            self._postgres = Postgres(self._var_dir, self._temporaries)
            self._postgres.prepare(self._lifeline)
        if env.given_redis_url() is None:
            self._require_embedding("REDIS_URL")
            self._valkey = Valkey(self._var_dir, self._temporaries)
            self._valkey.prepare()

    def _require_embedding(self, name: str) -> None:
        if not self._may_embed:
            raise env.EnvError(f"{name} must be set with --no-embedded")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            # nohup: whoever had it ignored wants us to survive the terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._asked_to_stop)
        keeping = asyncio.create_task(self._supervisor.keep())
        self._life = asyncio.create_task(self._live())
        try:
            await asyncio.wait({keeping, self._life}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._asked_at = self._asked_at or loop.time()
            for task in (keeping, self._life):
                task.cancel()
            ends = await asyncio.gather(keeping, self._life, return_exceptions=True)
            # Relays close their copy as they begin to drain; then new callers are refused, not left waiting.
            self._listener.close()
            await self._supervisor.stop()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _asked_to_stop(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._asked_at is None:
            _say("stopping")
            self._asked_at = now
            if self._life is not None:
                self._life.cancel()
        elif now - self._asked_at >= SAME_REQUEST_S:
            _say("stopping at once")
            self._supervisor.hurry()

    async def _live(self) -> None:
        """The start, and then the watch over the practice provider until cancelled."""
        embedded = [server for server in (self._postgres, self._valkey) if server is not None]
        for server in embedded:
            self._supervisor.add(server.spec(SERVER_STAGE))
        servers = self._supervisor.names()
        urls = self._urls()
        practice_port = choose_port(self._run_dir)
        uds = self._console_socket()
        house = self._house(urls, uds, practice_port)
        self._add_web(house, uds)
        await self._servers_answer(servers, urls)
        see_to_roles(urls["DATABASE_URL"])
        self._write_servers_file(urls)
        self._warn_of_generated_secrets()
        await self._prepare(house)
        self._gate.open()
        async with contextlib.aclosing(PracticeWatch(urls["DATABASE_URL"])) as watch:
            wanted = env.practice_allowed() and bool(await watch.is_wanted())
            self._supervisor.add(house.practice(practice_port), wanted=wanted)
            names = [name for name in self._supervisor.names() if wanted or name != "practice"]
            await self._all_answer(names)
            # Last: while they load, they would take the processor from those a person waits for.
            self._supervisor.add(house.worker())
            self._supervisor.add(house.beat())
            _tell(f"ready: {env.public_url() or self._own_url()}\n")
            self._print_setup_output()
            await self._watch_practice(watch)

    def _house(self, urls: dict[str, str], uds: Path, practice_port: int) -> House:
        given = {
            **urls,
            "HOST": env.host(),
            "PORT": str(self._listener.getsockname()[1]),
            "VAR_DIR": str(self._var_dir),
            "WEB_WORKERS": str(env.web_workers()),
            "CONSOLE_SOCKET": str(uds),
            "PRACTICE_PORT": str(practice_port),
        }
        environment = child_environment(os.environ, given, self._root)
        return House(environment, self._root, self._run_dir, env.drain_s(), self._gate.handle)

    def _urls(self) -> dict[str, str]:
        """Where the servers are, or will be in a moment."""
        return {
            "DATABASE_URL": env.database_url() if self._postgres is None else self._postgres.url(),
            "REDIS_URL": env.redis_url() if self._valkey is None else self._valkey.url(),
        }

    async def _servers_answer(self, embedded: Sequence[str], urls: dict[str, str]) -> None:
        """Return once both servers answer: embedded ones, of these names, or given ones."""
        await self._supervisor.wait_ready(*embedded, timeout_s=_SERVERS_S)
        if self._postgres is not None:
            self._postgres.ensure_database()
        else:
            await wait_for_database(urls["DATABASE_URL"], _say)
        if self._valkey is None:
            await wait_for_redis(urls["REDIS_URL"], _say)

    def _write_servers_file(self, urls: dict[str, str]) -> None:
        """Tell other commands of this machine where the embedded servers are."""
        found = {}
        if self._postgres is not None:
            found["database_url"] = urls["DATABASE_URL"]
        if self._valkey is not None:
            found["redis_url"] = urls["REDIS_URL"]
        write_private(self._run_dir / "servers.json", json.dumps(found) + "\n")

    def _warn_of_generated_secrets(self) -> None:
        generated = env.generated_secrets()
        if generated and self._postgres is None:
            _say(
                f"{', '.join(generated)}: made for this machine alone, kept in {self._var_dir}/secrets.json;"
                " give all machines of this installation the same"
            )

    async def _prepare(self, house: House) -> None:
        """Bring the database to the state this version and the configuration ask for."""
        config = env.config_file()
        words = ("prepare", *(["--config", str(config)] if config is not None else []))
        # What it says may hold a password that is told once, so it is kept in no log: an end of this process takes
        # a file without a name away.
        with tempfile.TemporaryFile() as output:
            try:
                spec = manage(*words, env=house.env, root=self._root)
                await self._supervisor.run(spec, timeout_s=_PREPARE_S, stdout=output)
            finally:
                output.seek(0)
                self._setup_output.append(output.read().decode(errors="replace"))

    def _print_setup_output(self) -> None:
        """Also when the start fails later: it is not told a second time."""
        _tell("".join(self._setup_output))
        self._setup_output.clear()

    def _add_web(self, house: House, uds: Path) -> None:
        """Start relay and console, which wait at the gate."""
        place, host = local_address(self._listener), self._host_header()

        async def relay_ready() -> bool:
            return await is_ready(place, host)

        async def console_ready() -> bool:
            return await is_ready(uds, host)

        self._supervisor.add(house.console(uds, console_ready))
        for number in range(1, env.web_workers() + 1):
            self._supervisor.add(house.relay(number, self._listener.fileno(), relay_ready))

    async def _all_answer(self, names: Sequence[str]) -> None:
        """Return when these children are ready and a person could sign in."""
        await self._supervisor.wait_ready(*names, timeout_s=_READY_S)
        try:
            async with asyncio.timeout(_READY_S):
                while True:
                    if await is_page(local_address(self._listener), "/sign-in/", self._host_header()):
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as exc:
            raise RunFailed(f"the sign-in page does not answer; see {self._var_dir}/log") from exc

    async def _watch_practice(self, watch: PracticeWatch) -> None:
        while True:
            wanted = env.practice_allowed() and await watch.is_wanted()
            if wanted is not None:
                self._supervisor.want("practice", wanted)
            await asyncio.sleep(_PRACTICE_S)

    def _host_header(self) -> str:
        public = (env.public_url() or "").partition("://")[2]
        return public or host_header(env.host(), local_address(self._listener)[1])

    def _own_url(self) -> str:
        return f"http://{url_host(env.host())}:{self._listener.getsockname()[1]}"

    def _console_socket(self) -> Path:
        path = self._run_dir / "console.sock"
        if not socket_fits(path):
            path = self._temporaries.folder("console", None, mode=0o700) / "console.sock"
        path.unlink(missing_ok=True)
        return path


def _leave(number: int, _frame: object) -> None:
    """End before the first child, once: what the `finally`s do must not be cut by the same signal handed on."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


def _say(text: str) -> None:
    """A message on standard error. A terminal that was closed must not stop an orderly end."""
    with contextlib.suppress(OSError):
        sys.stderr.write("".join(f"up: {line}\n" for line in text.splitlines()))
        sys.stderr.flush()


def _tell(text: str) -> None:
    """Text on standard output, for a person or the program that started us."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()


def _make_folders(var_dir: Path) -> None:
    """VAR_DIR and what every start needs in it. Raises EnvError."""
    try:
        # Passed through by the user of the embedded servers, read by nobody else.
        var_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
        for name in ("run", "log", "journal"):
            (var_dir / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise env.EnvError(f"VAR_DIR {var_dir} cannot be used: {exc.strerror}") from exc


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold VAR_DIR for this process; whether the last holder was killed. Raises EnvError if it is held."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise env.EnvError(f"VAR_DIR: {path} cannot be used: {exc.strerror}") from exc
    with os.fdopen(handle, "r+") as file:
        if not _lock(file.fileno()):
            holder = file.read().strip() or "unknown"
            raise env.EnvError(
                f"VAR_DIR {path.parent.parent} is used by another `manage.py up` (process {holder})"
            )
        after_kill = bool(file.read().strip())
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield after_kill
        finally:
            file.seek(0)
            file.truncate()


def _lock(handle: int) -> bool:
    """Take the lock if nobody has it. A command that only looks (`env.database_url`) has it for a moment."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
        else:
            return True
    return False
