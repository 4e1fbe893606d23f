"""Short temporary folders, for what cannot lie in VAR_DIR: sockets below a long path, hidden programs.

The path of each is kept in ``VAR_DIR/run/NAME.temporary``, so that the start after a kill finds the folder
again, and uses or removes it. A folder that is not ours any more (cleaned away and made anew by somebody
else) is never used.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from gateway.supervisor import Identity

__all__ = ["Temporaries"]

_SUFFIX = ".temporary"
# The longest name put below one is "/.s.PGSQL.5432"; see `home.socket_fits`.
_MAX_BASE_BYTES = 60


class Temporaries:
    """The temporary folders of one installation."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._held: dict[str, int] = {}

    def folder(self, name: str, identity: Identity | None, *, mode: int) -> Path:
        """The folder of a name, made now if need be; it belongs to ``identity`` or to us."""
        record = self._run_dir / f"{name}{_SUFFIX}"
        uid = identity.uid if identity else os.geteuid()
        found = _recorded(record)
        if found is None or not _belongs_to(found, uid, mode):
            found = Path(tempfile.mkdtemp(prefix="yizhan-", dir=_base()))
            record.write_text(str(found))
            found.chmod(mode)
            if identity:
                os.chown(found, identity.uid, identity.gid)
        if name not in self._held:
            # systemd-tmpfiles leaves folders alone that somebody holds a lock on (tmpfiles.d(5), "Age").
            self._held[name] = os.open(found, os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                fcntl.flock(self._held[name], fcntl.LOCK_SH | fcntl.LOCK_NB)
        return found

    def remove(self) -> None:
        """Remove every folder on record that is ours to remove."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()
        for record in self._run_dir.glob(f"*{_SUFFIX}"):
            found = _recorded(record)
            if found is not None and found.name.startswith("yizhan-") and not found.is_symlink():
                shutil.rmtree(found, ignore_errors=True)
            record.unlink(missing_ok=True)


def _base() -> str:
    """Where to make one: the usual place, unless its own path is long or private already."""
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp")
    return next((place for place in places if _is_short(place) and _is_open(Path(place))), places[0])


def _is_short(place: str) -> bool:
    return len(os.fsencode(place)) <= _MAX_BASE_BYTES


def _is_open(place: Path) -> bool:
    """Whether everybody may pass through to it."""
    try:
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in (place, *place.parents))
    except OSError:
        return False


def _recorded(record: Path) -> Path | None:
    try:
        text = record.read_text().strip()
    except OSError:
        return None
    return Path(text) if text.startswith("/") else None


def _belongs_to(path: Path, uid: int, mode: int) -> bool:
    try:
        state = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and state.st_uid == uid and stat.S_IMODE(state.st_mode) == mode
