"""The environment, read in one place: every variable this product knows, with its type and its default.

Each reader returns a checked value or raises EnvError, whose text is one line that names the variable, so a
bad value stops a start before anything else happens. An empty variable counts as not set. Variables that may
carry a secret can be given as ``NAME_FILE`` instead: the path of a file that holds the value (docker and
systemd hand secrets over that way).

Two values may also come from ``VAR_DIR/run/servers.json``, which ``manage.py up`` writes while its embedded
servers run, so that other commands find them. The environment wins over that file.

Nothing else in the product reads ``os.environ``, except `gateway.up`, which hands it on to its children.
"""

import base64
import binascii
import fcntl
import ipaddress
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from gateway import secret_store
from gateway.env_values import (
    EnvError,
    named,
    parse_database_url,
    read_integer,
    read_number,
    read_secret,
    read_switch,
    split_url,
)

__all__ = [
    "EmailServer",
    "EnvError",
    "check",
    "config_file",
    "console_socket",
    "database_parameters",
    "database_url",
    "drain_s",
    "email_server",
    "field_keys",
    "generated_secrets",
    "given_database_url",
    "given_redis_url",
    "host",
    "key_peppers",
    "limits_redis_url",
    "named",
    "parse_database_url",
    "port",
    "practice_allowed",
    "practice_port",
    "project_root",
    "public_url",
    "redis_url",
    "secret_fingerprints",
    "secret_key",
    "trusted_proxies",
    "var_dir",
    "web_workers",
]

# Enough to be beyond guessing when a person types one; generated ones have 64 characters.
_MIN_SECRET_CHARACTERS = 32
# A relay process costs about 100 MB; a machine with more cores says so with WEB_WORKERS.
_MAX_DEFAULT_WORKERS = 8


@dataclass(frozen=True, slots=True)
class EmailServer:
    """Where mail is handed over. ``tls`` is "none", "starttls" or "implicit"."""

    host: str
    port: int
    user: str
    password: str
    tls: str
    sender: str


def project_root() -> Path | None:
    """The folder of manage.py, or None where the product was installed as a package."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "manage.py").is_file() else None


def host() -> str:
    """HOST: the address to listen on, 127.0.0.1 if not said. A name or an IPv6 address is taken too."""
    text = named("HOST") or "127.0.0.1"
    if any(c.isspace() or c in "/@?#" for c in text):
        raise EnvError(f"HOST must be an address or a name to listen on, not {text!r}")
    return text.removeprefix("[").removesuffix("]")


def port() -> int:
    """PORT: 8000 if not said; 0 takes any free one."""
    return read_integer("PORT", 8000, low=0, high=65535)


def var_dir() -> Path:
    """VAR_DIR: the folder of all this installation keeps, absolute. Default: ``var`` beside manage.py."""
    text = named("VAR_DIR")
    if text is None:
        return (project_root() or Path.cwd()) / "var"
    path = Path(text).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise EnvError(f"VAR_DIR must be a folder: {path} is none")
    return path


def web_workers() -> int:
    """WEB_WORKERS: relay processes. Default: one for each core this process may use, at most eight."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    return read_integer("WEB_WORKERS", min(cores, _MAX_DEFAULT_WORKERS), low=1, high=256)


def config_file() -> Path | None:
    """CONFIG: the file that a start applies, absolute, or None."""
    text = named("CONFIG")
    if text is None:
        return None
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise EnvError(f"CONFIG: there is no file {path}")
    return path


def drain_s() -> float:
    """DRAIN_S: how long running calls may go on after a stop was asked for, in seconds."""
    return read_number("DRAIN_S", 30.0, low=0.0, high=3600.0)


def public_url() -> str | None:
    """PUBLIC_URL: the address people and programs use, without a slash at its end, or None."""
    text = named("PUBLIC_URL")
    if text is None:
        return None
    parts = split_url("PUBLIC_URL", text, {"http", "https"})
    if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise EnvError(f"PUBLIC_URL must be like https://relay.example.com, without a path, not {text!r}")
    return f"{parts.scheme}://{parts.netloc}"


def trusted_proxies() -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """TRUSTED_PROXIES: addresses or networks, separated by commas, whose forwarding headers are believed."""
    networks = []
    for text in (named("TRUSTED_PROXIES") or "").split(","):
        if not text.strip():
            continue
        try:
            networks.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError as exc:
            raise EnvError(f"TRUSTED_PROXIES: {text.strip()!r} is neither an address nor a network") from exc
    return tuple(networks)


def practice_allowed() -> bool:
    """PRACTICE: whether the practice provider may run at all; yes if not said."""
    return read_switch("PRACTICE", True)


def practice_port() -> int | None:
    """PRACTICE_PORT, which `up` hands to its children; else the one it keeps in VAR_DIR, or None."""
    if named("PRACTICE_PORT") is not None:
        return read_integer("PRACTICE_PORT", 0, low=1, high=65535)
    try:
        text = (var_dir() / "run" / "practice.port").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def console_socket() -> Path:
    """CONSOLE_SOCKET, which `up` hands to its children: the unix socket of the console process."""
    text = named("CONSOLE_SOCKET")
    return Path(text).absolute() if text else var_dir() / "run" / "console.sock"


def email_server() -> EmailServer | None:
    """EMAIL_URL: ``smtp://user:password@host:port/?from=relay@example.com``, or None if not set.

    ``smtp`` begins in the clear and asks for STARTTLS, ``smtps`` is TLS from the first byte, and
    ``smtp+plain`` is for a relay on this machine that speaks no TLS. The sender defaults to ``yizhan@host``.
    """
    url = read_secret("EMAIL_URL")
    if url is None:
        return None
    kinds = {"smtp": ("starttls", 587), "smtps": ("implicit", 465), "smtp+plain": ("none", 25)}
    parts = split_url("EMAIL_URL", url, set(kinds))
    if not parts.hostname:
        raise EnvError("EMAIL_URL names no host")
    tls, default_port = kinds[parts.scheme]
    query = dict(parse_qsl(parts.query))
    return EmailServer(
        host=parts.hostname,
        port=parts.port or default_port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=tls,
        sender=query.get("from", f"yizhan@{parts.hostname}"),
    )


def given_database_url() -> str | None:
    """DATABASE_URL (or DATABASE_URL_FILE) as given, checked, or None: then `up` starts its own server."""
    url = read_secret("DATABASE_URL")
    if url is not None:
        parse_database_url(url)
    return url


def given_redis_url() -> str | None:
    """REDIS_URL (or REDIS_URL_FILE) as given, checked, or None: then `up` starts its own server."""
    return _redis("REDIS_URL")


def database_url() -> str:
    """The database to use: as given, else the embedded one of a running `manage.py up`. Raises EnvError."""
    return given_database_url() or _embedded("database_url", "DATABASE_URL")


def redis_url() -> str:
    """The Redis to use: as given, else the embedded Valkey of a running `manage.py up`. Raises EnvError."""
    return given_redis_url() or _embedded("redis_url", "REDIS_URL")


def limits_redis_url() -> str:
    """LIMITS_REDIS_URL: where counters and beliefs live; the same server as `redis_url` if not said."""
    return _redis("LIMITS_REDIS_URL") or redis_url()


def database_parameters() -> dict[str, str]:
    """`database_url` as libpq keywords (host, port, user, password, dbname and any options)."""
    return parse_database_url(database_url())


def _redis(name: str) -> str | None:
    url = read_secret(name)
    if url is not None:
        parts = split_url(name, url, {"redis", "rediss"})
        if not parts.hostname:
            raise EnvError(f"{name} names no host: redis://:password@host:6379/0")
    return url


def _embedded(key: str, name: str) -> str:
    """A value of servers.json, if the supervisor that wrote it still lives."""
    folder = var_dir() / "run"
    try:
        value = json.loads((folder / "servers.json").read_text())[key]
    except (OSError, ValueError, KeyError):
        value = None
    if not isinstance(value, str) or not _is_locked(folder / "up.lock"):
        raise EnvError(f"{name} is not set and no embedded server runs: start `manage.py up`, or set {name}")
    return value


def _is_locked(path: Path) -> bool:
    """Whether a supervisor holds its lock; a killed one leaves a file that leads nowhere."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _kept(name: str) -> str:
    """A secret as given, else the one this installation generated. Raises EnvError."""
    given = read_secret(name)
    if given is not None:
        return given
    try:
        return secret_store.load_secrets(var_dir())[name]
    except secret_store.SecretStoreError as exc:
        raise EnvError(str(exc)) from exc


def secret_key() -> str:
    """SECRET_KEY of Django."""
    key = _kept("SECRET_KEY")
    if len(key) < _MIN_SECRET_CHARACTERS:
        raise EnvError(f"SECRET_KEY must have at least {_MIN_SECRET_CHARACTERS} characters")
    return key


def field_keys() -> tuple[bytes, ...]:
    """FIELD_KEYS: keys of AES-256 for stored credentials. The first encrypts, all decrypt."""
    keys = []
    for position, text in enumerate(_list("FIELD_KEYS"), start=1):
        try:
            key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != 32:
            raise EnvError(f"FIELD_KEYS: key {position} is not 32 bytes in base64")
        keys.append(key)
    return tuple(keys)


def key_peppers() -> tuple[bytes, ...]:
    """KEY_PEPPER: secrets mixed into the fingerprints of keys. The first makes new ones, all are tried."""
    peppers = _list("KEY_PEPPER")
    if any(len(pepper) < _MIN_SECRET_CHARACTERS for pepper in peppers):
        raise EnvError(f"KEY_PEPPER: each entry must have at least {_MIN_SECRET_CHARACTERS} characters")
    return tuple(pepper.encode() for pepper in peppers)


def _list(name: str) -> list[str]:
    entries = [text.strip() for text in _kept(name).split(",") if text.strip()]
    if not entries:
        raise EnvError(f"{name} holds no entry")
    if len(set(entries)) != len(entries):
        raise EnvError(f"{name} holds the same entry twice")
    return entries


def generated_secrets() -> tuple[str, ...]:
    """Names of the secrets that were not given and so belong to this machine alone."""
    return tuple(name for name in secret_store.SECRET_NAMES if read_secret(name) is None)


def secret_fingerprints() -> dict[str, str]:
    """A fingerprint of each secret now in use, so that two machines can be seen to share them."""
    return {
        "SECRET_KEY": secret_store.fingerprint(secret_key()),
        "FIELD_KEYS": secret_store.fingerprint(field_keys()[0]),
        "KEY_PEPPER": secret_store.fingerprint(key_peppers()[0]),
    }


def check() -> None:
    """Read every variable once. Raises EnvError for the first that cannot be used."""
    readers: tuple[Callable[[], Any], ...] = (
        host, port, var_dir, web_workers, config_file, drain_s, public_url, trusted_proxies, practice_allowed,
        email_server, given_database_url, given_redis_url, secret_key, field_keys, key_peppers,
    )  # fmt: skip
    for read in readers:
        read()
    _redis("LIMITS_REDIS_URL")
