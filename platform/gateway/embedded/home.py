"""The folders an embedded server lives in, and the user it runs as.

PostgreSQL refuses to run as root, so a supervisor that is root gives both servers an unprivileged user. What
that user may reach is found out by trying, as that user, and never changed above the server's own folder:

    VAR_DIR/pg/          ours, can be passed through
    VAR_DIR/pg/data/     the server's own, mode 0700, its working directory

**A private parent.** Below /root, say, the user cannot reach its own data by their path. On Linux it can by
``/proc/self/cwd``: we step into the folder before the user changes, and that link leads there without passing
through the parents. So in a `Home` that `is_hidden` every path the server is told goes through it (`seen`).

**A private program.** A virtual environment in a private folder cannot be executed by that user either. The
program is then copied, to ``VAR_DIR/pg/program`` or, in a hidden home, to a temporary folder, since a program
looks for its own files by their real path.
"""

import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from gateway.embedded.binaries import LaunchError, Program
from gateway.embedded.temporary import Temporaries
from gateway.supervisor import Identity

__all__ = ["Home", "choose_identity", "run_as", "socket_fits"]

# sun_path holds 108 bytes on Linux and 104 on macOS, with the final zero.
_MAX_SOCKET_BYTES = 100
_TRY_S = 20


def socket_fits(path: Path) -> bool:
    """Pure. Whether a unix socket can have this path."""
    return len(os.fsencode(path)) <= _MAX_SOCKET_BYTES


def choose_identity(data: Path, names: tuple[str, ...]) -> Identity | None:
    """The user for the server of a data folder, or None for our own. Raises LaunchError.

    As root: the owner of data that exist already, else the first of the named users this machine has.
    """
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise LaunchError(
                f"{data} belongs to {_user_name(owner)}: start as that user, as root, or elsewhere"
            )
        return None
    if owner:
        return Identity(_user_name(owner), owner, data.stat().st_gid)
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Identity(name, entry.pw_uid, entry.pw_gid)
    raise LaunchError(f"root needs one of the users {', '.join(names)} to run a server as, and has none")


def run_as(identity: Identity | None, argv: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    """Run a short command as a user, with an empty environment. Raises OSError if it cannot be run."""
    return subprocess.run(  # type: ignore[call-overload]
        argv,
        user=identity.uid if identity else None,
        group=identity.gid if identity else None,
        extra_groups=[] if identity else None,
        capture_output=True,
        text=True,
        check=False,
        **{"cwd": "/", "env": {}, "timeout": _TRY_S} | more,
    )


class Home:
    """One server's folders, its user, and the paths as that user sees them."""

    def __init__(self, folder: Path, users: tuple[str, ...], temporaries: Temporaries) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.identity = choose_identity(self.data, users)
        self.temporaries = temporaries
        self.is_hidden = False

    def open(self) -> None:
        """Make the folders and find out what the server's user can reach. Raises LaunchError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o711)
        except OSError as exc:
            raise LaunchError(f"{self.folder} cannot be used: {exc.strerror}") from exc
        self.is_hidden = not self._can_enter(self.folder)
        if self.is_hidden and sys.platform != "linux":
            name = self.identity.name if self.identity else "this user"
            raise LaunchError(f"{name} cannot reach {self.folder}: choose a VAR_DIR outside private folders")

    def make_data(self, folder: Path) -> None:
        """An empty folder for the server alone."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.give(folder)

    def give(self, path: Path) -> None:
        """Make the server's user the owner of a file or folder."""
        if self.identity:
            os.chown(path, self.identity.uid, self.identity.gid)

    def seen(self, path: Path, cwd: Path | None = None) -> str:
        """A path as the server can use it, given the working directory it is started in."""
        if not self.is_hidden or not path.is_relative_to(self.folder):
            return str(path)
        relative = os.path.relpath(path, cwd or self.data)
        return "/proc/self/cwd" if relative == "." else f"/proc/self/cwd/{relative}"

    def socket_folder(self, socket_name: str) -> Path:
        """Where the server may put a socket of this name: its data folder, else a short temporary one."""
        if socket_fits(self.data / socket_name):
            return self.data
        return self.temporaries.folder(f"{self.folder.name}-socket", self.identity, mode=0o700)

    def runnable(self, program: Program) -> Path:
        """The program where the server's user can execute it, copied if need be. Raises LaunchError."""
        if self._can_run(program.path):
            return program.path
        if not program.parts:
            raise LaunchError(f"{program.path} cannot be executed by {self._name()}")
        if self.is_hidden:
            place = self.temporaries.folder(f"{self.folder.name}-program", None, mode=0o755)
        else:
            place = self.folder / "program"
        copied = place / program.path.relative_to(program.base)
        if not _is_copy(program, place) or not self._can_run(copied):
            _copy_program(program, place)
        if not self._can_run(copied):
            raise LaunchError(f"{copied} cannot be executed by {self._name()}: is {place} mounted noexec?")
        return copied

    def _name(self) -> str:
        return self.identity.name if self.identity else "this user"

    def _can_enter(self, folder: Path) -> bool:
        if self.identity is None:
            return True
        try:
            # The kernel's own answer: it looks at every parent and at access lists.
            done = run_as(self.identity, ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)])
        except (OSError, subprocess.SubprocessError) as exc:
            raise LaunchError(
                f"root may not become {self.identity.name} here ({exc}): start as another user, or set "
                "DATABASE_URL and REDIS_URL"
            ) from exc
        return done.returncode == 0

    def _can_run(self, path: Path) -> bool:
        try:
            return run_as(self.identity, [str(path), "--version"]).returncode == 0
        except (OSError, subprocess.SubprocessError):
            return False


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _stamp(program: Program) -> str:
    state = program.path.stat()
    return f"{program.path} {state.st_size} {state.st_mtime_ns}\n"


def _is_copy(program: Program, place: Path) -> bool:
    """Whether a copy of exactly this program was finished there."""
    try:
        return (place / "copied").read_text() == _stamp(program)
    except OSError:
        return False


def _copy_program(program: Program, place: Path) -> None:
    """Copy a program with its libraries, readable by all and writable by us alone."""
    try:
        place.mkdir(mode=0o755, exist_ok=True)
        (place / "copied").unlink(missing_ok=True)
        for part in program.parts:
            source, target = program.base / part, place / part
            if target.is_dir():
                shutil.rmtree(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(source, target)
        for path in (place, *place.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or _is_program(program, path, place) else 0o644)
        (place / "copied").write_text(_stamp(program))
    except OSError as exc:
        raise LaunchError(f"{program.path.name} cannot be copied to {place}: {exc}") from exc


def _is_program(program: Program, copied: Path, place: Path) -> bool:
    original = program.base / copied.relative_to(place)
    return bool(original.exists() and stat.S_IMODE(original.stat().st_mode) & 0o100)
