"""Readers of single variables by type, for `gateway.env`, which says what each variable means.

A reader returns a checked value, or raises EnvError with one line that names the variable. A URL is never
repeated in an error: it may carry a password.
"""

import os
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

__all__ = [
    "EnvError",
    "named",
    "parse_database_url",
    "read_integer",
    "read_number",
    "read_secret",
    "read_switch",
    "split_url",
]

_MAX_SECRET_FILE_BYTES = 64 * 1024


class EnvError(Exception):
    """A variable has a value that cannot be used. The text is one line for a person and names it."""


def named(name: str) -> str | None:
    """Any variable by its name, for values that refer to one (``env:NAME`` in an apply file)."""
    return os.environ.get(name) or None


def read_secret(name: str) -> str | None:
    """The value of NAME, or the content of the file that NAME_FILE names, without its last line break."""
    value, file = named(name), named(f"{name}_FILE")
    if value is not None and file is not None:
        raise EnvError(f"{name} and {name}_FILE are both set: give one of them")
    if file is None:
        return value
    try:
        data = Path(file).read_bytes()
        text = data.decode().rstrip("\r\n")
    except OSError as exc:
        raise EnvError(f"{name}_FILE: {file} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise EnvError(f"{name}_FILE: {file} is not text") from exc
    if not text or len(data) > _MAX_SECRET_FILE_BYTES:
        raise EnvError(f"{name}_FILE: {file} is {'too long' if text else 'empty'}")
    return text


def read_number(name: str, default: float, *, low: float, high: float) -> float:
    text = named(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise EnvError(f"{name} must be a number from {low:g} to {high:g}, not {text!r}")
    return number


def read_integer(name: str, default: int, *, low: int, high: int) -> int:
    text = named(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise EnvError(f"{name} must be a whole number from {low} to {high}, not {text!r}")
    return int(text)


def read_switch(name: str, default: bool) -> bool:
    text = named(name)
    if text is None:
        return default
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off"}:
        return False
    raise EnvError(f"{name} must be 1 or 0, not {text!r}")


def split_url(name: str, url: str, schemes: set[str]) -> SplitResult:
    """The parts of a URL. Never repeats the URL in an error: it may carry a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as exc:
        raise EnvError(f"{name} is not a URL: {exc}") from exc
    if parts.scheme not in schemes:
        wanted = ", ".join(f"{scheme}://" for scheme in sorted(schemes))
        raise EnvError(f"{name} must begin with one of {wanted}")
    return parts


def parse_database_url(url: str) -> dict[str, str]:
    """Pure. The libpq keywords in a PostgreSQL URL. Raises EnvError if it names no server or no database.

    A unix socket is given as ``host`` in the query (PostgreSQL 18 documentation, 32.1.1.2).

    >>> parse_database_url("postgresql://ann:p%40ss@/books?host=/run/pg")
    {'user': 'ann', 'password': 'p@ss', 'dbname': 'books', 'host': '/run/pg'}
    """
    parts = split_url("DATABASE_URL", url, {"postgres", "postgresql"})
    found = {
        "host": unquote(parts.hostname or ""),
        "port": str(parts.port or ""),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "dbname": unquote(parts.path.lstrip("/")),
    } | dict(parse_qsl(parts.query))
    found = {key: value for key, value in found.items() if value}
    for key, what in (("host", "server"), ("dbname", "database"), ("user", "user")):
        if key not in found:
            raise EnvError(f"DATABASE_URL names no {what}: postgresql://user:password@server/database")
    order = ("user", "password", "dbname", "host", "port")
    return {key: found[key] for key in order if key in found} | found
