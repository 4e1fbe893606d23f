"""Where the limit store is, read from its URL.

    redis://[user][:password]@host[:port][/database]
    rediss://…            the same over TLS
    unix://[user][:password]@/path/to.sock[?db=database]

Options of rediss, as redis-py names them: `ssl_cert_reqs` (required, none), `ssl_check_hostname` (true,
false), `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`. Percent escapes in user, password and path are undone.
"""

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["StoreAddress", "make_tls_context", "parse_store_url", "store_name"]

_TLS_OPTIONS = {"ssl_cert_reqs", "ssl_check_hostname", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Either a host and port or the path of a unix socket; `tls` is None for a connection in the clear."""

    host: str = ""
    port: int = 6379
    path: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    tls: dict[str, str] | None = None


def parse_store_url(url: str) -> StoreAddress:
    """Pure. The address of a URL. Raises ValueError, without the password in it, for what it can't follow.

    >>> parse_store_url("redis://:s%40x@db.example:6380/2")
    StoreAddress(host='db.example', port=6380, path='', username='', database=2, tls=None)
    >>> parse_store_url("unix:///run/v.sock?db=1").path
    '/run/v.sock'
    """
    parts = urlsplit(url)
    try:
        port = parts.port or 6379
    except ValueError:  # its message may quote a piece of a password with an unescaped slash
        raise ValueError("the store's URL has no valid port; a password needs percent escapes") from None
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("the store's URL must start with redis://, rediss:// or unix://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = options.keys() - {"db"} - (_TLS_OPTIONS if parts.scheme == "rediss" else set())
    if unknown:
        raise ValueError(f"the store's URL has an unknown option: {min(unknown)}")
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    if parts.scheme == "unix":
        if not parts.path or parts.hostname:
            raise ValueError("a unix:// URL must name the path of a socket")
        database = _parse_database(options.pop("db", "0"))
        return StoreAddress(path=unquote(parts.path), username=username, password=password, database=database)
    database = _parse_database(options.pop("db", "") or parts.path.strip("/") or "0")
    return StoreAddress(
        host=parts.hostname or "localhost",
        port=port,
        username=username,
        password=password,
        database=database,
        tls=options if parts.scheme == "rediss" else None,
    )


def store_name(url: str) -> str:
    """Pure. What tells one store from another: where it is, and which of its databases. Raises as `parse_store_url`.

    >>> store_name("redis://:secret@db.example/2")
    'db.example:6379/2'
    """
    address = parse_store_url(url)
    return f"{address.path or f'{address.host}:{address.port}'}/{address.database}"


def _parse_database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("the store's URL must name its database by a number")
    return int(text)


def make_tls_context(options: dict[str, str]) -> ssl.SSLContext:
    """The TLS set-up that the options of a rediss URL ask for; verified against the system's authorities by
    default.

    Reads the files the options name. Raises OSError (ssl.SSLError among them) if one can't be used, and
    ValueError for an option's unknown value.
    """
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    requirement = options.get("ssl_cert_reqs", "required")
    check_hostname = options.get("ssl_check_hostname", "true").lower()
    if requirement not in {"required", "none"} or check_hostname not in {"true", "false"}:
        raise ValueError("the store's URL has an unknown value for ssl_cert_reqs or ssl_check_hostname")
    if requirement == "none" or check_hostname == "false":
        context.check_hostname = False
    if requirement == "none":
        context.verify_mode = ssl.CERT_NONE
    if "ssl_certfile" in options:
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    return context
