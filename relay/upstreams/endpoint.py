"""Pure. Where an upstream is: its base URL taken apart once, when the configuration is read.

A base URL is stored whole, with its path (`https://open.bigmodel.cn/api/paas/v4`), and a call's path is
appended to it (`/chat/completions`). Nothing of it is guessed: what cannot be meant (credentials,
fragments, white space) is refused with a sentence for the person who typed it.

Connections are shared by everything that leads to the same place in the same way, so the pool's key is
`Endpoint.key` (scheme, host, port, proxy, socket, guard) and not the endpoint itself: two accounts at one
provider, with different paths, use one set of warm connections.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["Endpoint", "Proxy"]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PROXY_PORTS = {"http": 8080, "socks5": 1080, "socks5h": 1080}

# RFC 3986, 3.3: what may stand in a path. Everything else has to be percent-encoded by whoever wrote the URL.
_PATH = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*\Z")
# RFC 1123 labels, and the underscore that container networks use in service names.
_HOST = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\Z"
)
_PRINTABLE = re.compile(r"[^\x00-\x20\x7f\\]+\Z")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP (CONNECT) or SOCKS5 proxy, with its credentials kept out of every representation."""

    scheme: str
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Return the proxy that `url` names. Raises ValueError with a sentence that quotes no credential.

        `socks5` and `socks5h` mean the same: names are resolved by the proxy, because the usual reason for
        a proxy is a place whose own resolver lies about the upstream.

        >>> Proxy.parse("socks5://ann:secret@10.0.0.1:1080")
        Proxy(scheme='socks5', host='10.0.0.1', port=1080)
        """
        parts = _split(url, "proxy address")
        if parts.scheme not in _PROXY_PORTS:
            raise ValueError("The proxy address must start with http://, socks5:// or socks5h://.")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("The proxy address must end after its port.")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if any(ord(c) < 0x20 for c in user + password) or ":" in user:
            raise ValueError("The user or password in the proxy address has a character that cannot be sent.")
        if max(len(user.encode()), len(password.encode())) > 255:
            raise ValueError("The user or password in the proxy address is longer than 255 bytes.")
        port = _port(parts, "proxy address") or _PROXY_PORTS[parts.scheme]
        return cls(parts.scheme, _host(parts, "proxy address"), port, user, password)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One base URL and the way there. Build it with `parse`.

    `authority` is the Host header, `key` the pool's key. `key` holds the proxy's credentials: never print it.
    """

    scheme: str
    host: str
    port: int
    path_prefix: str = ""
    allow_private: bool = False
    proxy: Proxy | None = None
    unix_path: str | None = None
    authority: bytes = field(init=False, repr=False, compare=False)
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        object.__setattr__(self, "authority", f"{host}{port}".encode())
        p = self.proxy
        proxied = (p.scheme, p.host, p.port, p.user, p.password) if p else None
        way = (self.scheme, self.host, self.port, self.allow_private, proxied, self.unix_path)
        object.__setattr__(self, "key", repr(way))

    @classmethod
    def parse(
        cls,
        base_url: str,
        *,
        allow_private: bool = False,
        proxy: str | None = None,
        unix_path: str | None = None,
    ) -> Self:
        """Return the endpoint of `base_url`. Raises ValueError with one clear sentence when it cannot be
        meant.

        With `unix_path` the connection goes to that socket and the URL's host only fills the Host header.

        >>> Endpoint.parse("https://open.bigmodel.cn/api/paas/v4/").target("/chat/completions")
        '/api/paas/v4/chat/completions'
        """
        parts = _split(base_url, "base URL")
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError("The base URL must start with http:// or https://.")
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "The base URL must not hold a user or password: give the credential in its own field."
            )
        if parts.fragment or "#" in base_url:
            raise ValueError("The base URL must not have a fragment (#...).")
        if parts.query or "?" in base_url:
            raise ValueError("The base URL must not have a query (?...).")
        if not _PATH.match(parts.path):
            raise ValueError("The base URL's path has a character that must be percent-encoded.")
        if unix_path is not None and (proxy or not unix_path or "\x00" in unix_path):
            raise ValueError("A unix socket needs a file path and takes no proxy.")
        port = _port(parts, "base URL") or _DEFAULT_PORTS[parts.scheme]
        way = Proxy.parse(proxy) if proxy else None
        return cls(
            parts.scheme,
            _host(parts, "base URL"),
            port,
            parts.path.rstrip("/"),
            allow_private,
            way,
            unix_path,
        )

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    def target(self, path: str) -> str:
        """Return what stands in the request line for `path`, which begins with `/` or is empty."""
        return self.path_prefix + path if path or self.path_prefix else "/"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}{self.path_prefix}"


def _split(url: str, what: str) -> SplitResult:
    # urlsplit drops tabs and newlines silently and takes a backslash for a path character, while other
    # readers of the same URL take it for a slash: both are ways to smuggle a host past whoever checked it.
    if not _PRINTABLE.match(url):
        raise ValueError(f"The {what} must not be empty or have spaces, control characters or backslashes.")
    try:
        parts = urlsplit(url)
    except ValueError as exc:
        raise ValueError(f"The {what} cannot be read as a URL.") from exc
    if not parts.hostname:
        raise ValueError(f"The {what} has no host.")
    return parts


def _port(parts: SplitResult, what: str) -> int | None:
    try:
        port = parts.port
    except ValueError as exc:
        raise ValueError(f"The port in the {what} must be a number from 1 to 65535.") from exc
    if port == 0:
        raise ValueError(f"The port in the {what} must be a number from 1 to 65535.")
    return port


def _host(parts: SplitResult, what: str) -> str:
    """Return the host in ASCII, lower case, without a trailing dot. Raises ValueError if it is no host."""
    host = parts.hostname or ""
    if ":" in host:
        try:
            if "%" in host:  # a zone means something on one machine only, and has no place in a Host header
                raise ValueError("zone")
            return str(ipaddress.IPv6Address(host))
        except ValueError as exc:
            raise ValueError(f"The host in the {what} is not an IPv6 address.") from exc
    try:
        ascii_host = host.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError as exc:
        raise ValueError(f"The host in the {what} is not a legal name.") from exc
    if not _HOST.match(ascii_host):
        raise ValueError(f"The host in the {what} is not a legal name.")
    return ascii_host
