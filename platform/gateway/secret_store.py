"""Secrets that a first start makes and every later start finds again.

They live in one file, ``VAR_DIR/secrets.json``, mode 0600. Several processes may ask for it at the same
moment (relays, worker, a person's ``manage.py shell``): a lock file makes one of them the writer, the others
read what it wrote. The file is replaced by a rename, so a reader sees the whole of it or none.

Values given in the environment win over the file and are never written to it; `gateway.env` decides that.
"""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["SECRET_NAMES", "SecretStoreError", "fingerprint", "load_secrets", "write_private"]

_FILE = "secrets.json"
_LOCK = "secrets.lock"


class SecretStoreError(Exception):
    """The file of secrets cannot be used; the text is one line for a person."""


def _random_text() -> str:
    return secrets.token_urlsafe(48)


def _random_field_key() -> str:
    """A key of AES-256: 32 random bytes in base64."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


_MAKERS: dict[str, Callable[[], str]] = {
    "SECRET_KEY": _random_text,
    "FIELD_KEYS": _random_field_key,
    "KEY_PEPPER": _random_text,
}

SECRET_NAMES = tuple(_MAKERS)


def load_secrets(var_dir: Path) -> Mapping[str, str]:
    """The secrets of this installation by name, made now if they are missing.

    Safe to call from many processes at once: all get the same values. A secret that a newer version added is
    added to an older file. Raises SecretStoreError if the file is unreadable, damaged or open to others.
    """
    path = var_dir / _FILE
    found = _read(path)
    if found is not None and _MAKERS.keys() <= found.keys():
        return found
    with _locked(var_dir):
        found = _read(path) or {}
        missing = {name: make() for name, make in _MAKERS.items() if name not in found}
        if missing:
            found = found | missing
            write_private(path, json.dumps(found, indent=2) + "\n")
    return found


def fingerprint(secret: str | bytes) -> str:
    """Pure. Twelve hexadecimal digits that tell two secrets apart without giving either away.

    >>> fingerprint("a") == fingerprint(b"a") != fingerprint("b")
    True
    """
    data = secret.encode() if isinstance(secret, str) else secret
    return hashlib.blake2b(data, digest_size=6, person=b"yizhan-secret").hexdigest()


def write_private(path: Path, text: str) -> None:
    """Replace a file as a whole, mode 0600 from its first moment. Raises OSError if the folder refuses."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    # The rename itself must survive a power loss: without it stored credentials are unreadable.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _locked(var_dir: Path) -> Iterator[None]:
    """Hold the lock file; it ends with the process, so a killed writer leaves nothing to clean up."""
    try:
        var_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        handle = os.open(var_dir / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise SecretStoreError(f"secrets cannot be kept in {var_dir}: {exc.strerror}") from exc
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: Path) -> dict[str, str] | None:
    """What the file holds, or None if there is none. Raises SecretStoreError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise SecretStoreError(f"{path} cannot be read: {exc.strerror}") from exc
    with os.fdopen(handle) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise SecretStoreError(f"{path} is open to other users (mode {mode:04o}): chmod 600 it")
        try:
            found = json.load(file)
        except ValueError as exc:
            raise SecretStoreError(f"{path} is damaged: restore it from a backup") from exc
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise SecretStoreError(f"{path} is damaged: restore it from a backup")
    return found
