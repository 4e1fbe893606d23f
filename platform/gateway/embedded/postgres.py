"""The embedded PostgreSQL: made once, started with every `up`, reached by a unix socket only.

    VAR_DIR/pg/passwords.json   of the superuser and of the login, mode 0600, beside the data they open
    VAR_DIR/pg/data/            the data folder, owned by the server's user
    VAR_DIR/pg/data.new/        initdb at work; renamed when done, so a killed one leaves no half folder

No port is opened (``listen_addresses=''``), sign-in is by SCRAM even on the socket. See `home` for users and
private folders and `roles` for who may do what.
"""

import json
import locale
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg

from gateway.embedded.binaries import LaunchError, find_postgres
from gateway.embedded.home import Home, run_as
from gateway.embedded.leftover import end_leftover
from gateway.embedded.roles import ensure_roles, login_sql, quote_identifier
from gateway.embedded.temporary import Temporaries
from gateway.secret_store import write_private
from gateway.supervisor import ChildSpec, Lifeline

__all__ = ["DATABASE", "LOGIN", "Postgres"]

DATABASE = "yizhan"
LOGIN = "yizhan"

_SUPERUSER = "postgres"
_USERS = ("postgres", "nobody")
_PORT = 5432
_SOCKET = f".s.PGSQL.{_PORT}"
_INITDB_S = 300
# A fast shutdown writes a checkpoint; a killed supervisor's server may be in the middle of one.
_STOP_S = 60.0
_MIN_SHARED_MEMORY_BYTES = 256 * 1024 * 1024


class Postgres:
    """One embedded server. `prepare`, then run `spec`, then, once `is_ready`, `ensure_database`.

    ``major`` asks for one version for new data; data that exist keep theirs.
    """

    def __init__(
        self,
        var_dir: Path,
        temporaries: Temporaries,
        settings: Mapping[str, str] | None = None,
        *,
        major: int | None = None,
    ) -> None:
        self._home = Home(var_dir / "pg", _USERS, temporaries)
        self._settings = dict(settings or {})
        self._major = major
        self._passwords: dict[str, str] = {}
        self._program = Path()
        self._socket_folder = Path()

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._home.data

    def prepare(self, lifeline: Lifeline) -> None:
        """Everything before the start: folders, data, a leftover of an earlier start. Raises LaunchError."""
        self._home.open()
        program = find_postgres(_data_version(self.data) or self._major)
        self._program = self._home.runnable(program)
        self._passwords = self._read_passwords()
        if self.data.exists():
            end_leftover(self.data / "postmaster.pid", self.data, signal.SIGINT, wait_s=_STOP_S)
        else:
            self._make_data(program.major, lifeline)
        self._socket_folder = self._home.socket_folder(_SOCKET)

    def spec(self, stage: int) -> ChildSpec:
        """The server as a child of a supervisor."""
        home = self._home
        # The folder may have a comma or a blank in it; the setting is a list.
        folder = home.seen(self._socket_folder).replace('"', '""')
        settings = {
            "listen_addresses": "",
            "port": str(_PORT),
            "unix_socket_directories": f'"{folder}"',
            "password_encryption": "scram-sha-256",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_checkpoints": "off",
            # Not built into the bundled binaries; asking for it would only cost planning time.
            "jit": "off",
            "dynamic_shared_memory_type": _shared_memory(),
        } | self._settings
        argv = [str(self._program), "-D", home.seen(self.data)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]

        async def ready() -> bool:
            return self.is_ready()

        return ChildSpec(
            name="postgres",
            argv=tuple(argv),
            env=_environment(),
            cwd=self.data,
            identity=home.identity,
            # SIGINT is the fast shutdown: open transactions are rolled back, the data are left clean.
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT,
            kill_signal=signal.SIGQUIT,
            stage=stage,
            stop_s=_STOP_S,
            hurry_s=_STOP_S,
            ready=ready,
        )

    def is_ready(self) -> bool:
        """Whether the server accepts connections by now."""
        conninfo = f"host={quote_conninfo(str(self._socket_folder))} port={_PORT} connect_timeout=2"
        return psycopg.pq.PGconn.ping(conninfo.encode()) == psycopg.pq.Ping.OK

    def url(self, database: str = DATABASE) -> str:
        """The DATABASE_URL of the login, which is no superuser."""
        return self._url(LOGIN, database)

    def admin_url(self, database: str = "postgres") -> str:
        """A URL of the superuser: for making databases, never for the application."""
        return self._url(_SUPERUSER, database)

    def ensure_database(self, database: str = DATABASE) -> None:
        """Make the login, the roles and a database that the login can use. May be done again."""
        with psycopg.connect(self.admin_url(), autocommit=True) as admin:
            verifier = admin.pgconn.encrypt_password(
                self._passwords[LOGIN].encode(), LOGIN.encode(), b"scram-sha-256"
            )
            admin.execute(login_sql(LOGIN, verifier.decode()).encode())
            found = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
            if found is None:
                admin.execute(f"CREATE DATABASE {quote_identifier(database)}".encode())
        with psycopg.connect(self.admin_url(database)) as admin:
            ensure_roles(admin, LOGIN)
            admin.execute(f"ALTER DATABASE {quote_identifier(database)} OWNER TO relay_owner".encode())

    def _url(self, user: str, database: str) -> str:
        password = quote(self._passwords[user], safe="")
        folder = quote(str(self._socket_folder), safe="")
        return f"postgresql://{user}:{password}@/{database}?host={folder}&port={_PORT}"

    def _read_passwords(self) -> dict[str, str]:
        path = self._home.folder / "passwords.json"
        try:
            return {str(user): str(password) for user, password in json.loads(path.read_text()).items()}
        except FileNotFoundError as exc:
            if self.data.exists():
                raise LaunchError(f"{path} is missing: nothing else opens {self.data}, restore it") from exc
        except (OSError, ValueError, AttributeError) as exc:
            raise LaunchError(f"{path} cannot be read: {exc}") from exc
        passwords = {user: secrets.token_urlsafe(32) for user in (_SUPERUSER, LOGIN)}
        write_private(path, json.dumps(passwords) + "\n")
        return passwords

    def _make_data(self, major: int, lifeline: Lifeline) -> None:
        """initdb, in a folder beside, which then gets its name. Raises LaunchError."""
        home = self._home
        new = home.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        home.make_data(new)
        password_file = home.folder / "initdb.password"
        write_private(password_file, self._passwords[_SUPERUSER] + "\n")
        home.give(password_file)
        argv = [
            str(self._program.with_name("initdb")),
            f"--pgdata={home.seen(new, new)}",
            f"--username={_SUPERUSER}",
            f"--pwfile={home.seen(password_file, new)}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            *_locale_arguments(major),
            *(["--no-sync"] if self._settings.get("fsync") == "off" else []),
        ]
        try:
            done = run_as(
                home.identity,
                argv,
                cwd=new,
                env=_environment(),
                timeout=_INITDB_S,
                # The next start removes this folder: nobody may still be at work in it.
                preexec_fn=lifeline.tie(signal.SIGKILL),
            )
        except (OSError, subprocess.SubprocessError) as exc:
            raise LaunchError(f"initdb cannot be run: {exc}") from exc
        finally:
            password_file.unlink(missing_ok=True)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise LaunchError(f"initdb failed: {lines[-1] if lines else f'exit code {done.returncode}'}")
        new.rename(self.data)


def quote_conninfo(value: str) -> str:
    r"""Pure. A value in a libpq connection string.

    >>> print(quote_conninfo("/tmp/it's"))
    '/tmp/it\'s'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _data_version(data: Path) -> int | None:
    """The major version that made these data, or None if there are none yet. Raises LaunchError."""
    if not data.exists():
        return None
    try:
        return int((data / "PG_VERSION").read_text())
    except (OSError, ValueError) as exc:
        raise LaunchError(f"{data} is there, but holds no PostgreSQL data: move it away") from exc


def _locale_arguments(major: int) -> list[str]:
    """Sorting that does not depend on the machine's libraries, so that indexes survive their upgrade."""
    if major >= 17:
        return ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", f"--locale={_c_locale()}"]
    return ["--no-locale"]


def _c_locale() -> str:
    """C.UTF-8 where the C library has it."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        return locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return "C"
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


def _shared_memory() -> str:
    """Where parallel queries share memory: containers often have 64 MB of /dev/shm, which is too little."""
    try:
        state = os.statvfs("/dev/shm")
    except OSError:
        return "mmap"
    return "posix" if state.f_frsize * state.f_blocks >= _MIN_SHARED_MEMORY_BYTES else "mmap"


def _environment() -> dict[str, str]:
    """Nothing of ours: PGDATA, PGOPTIONS, LANG and the like would change what the server does."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
