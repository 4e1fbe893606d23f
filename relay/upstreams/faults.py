"""What can go wrong between us and an upstream, as one closed family.

Every failure of the client pool leaves it as an `UpstreamFault` with one of these kinds; foreign exceptions
(`OSError`, `ssl.SSLError`, `HttpParserError`, ...) are translated at the place where they occur:

    UpstreamFault
    ├── before a connection stood (nothing of the request left this machine)
    │   ├── resolve_failed       the name has no address, or the look-up failed
    │   ├── address_refused      the address is private, loopback, metadata, ... and was not allowed
    │   ├── connect_failed       refused, unreachable, reset while connecting
    │   ├── connect_timeout      no connection (TCP, proxy and TLS together) within `connect_s`
    │   ├── tls_failed           handshake or certificate
    │   └── proxy_failed         the proxy refused, wants other credentials, or speaks nonsense
    ├── before the first byte of the answer
    │   ├── send_failed          the connection broke while the request was being written
    │   └── headers_timeout      no status line and headers within `first_token_s`
    ├── waiting for the body
    │   ├── first_token_timeout  headers came, the first content did not (the caller sets this wait)
    │   └── idle_timeout         no byte for `idle_s`
    ├── at any time
    │   ├── total_timeout        the whole exchange took longer than `total_s`
    │   ├── cut                  closed or reset before the answer was complete
    │   ├── malformed            not HTTP/1.1, or framing that could be read in two ways
    │   ├── too_large            headers, body or decompressed body above the limit
    │   └── closed               we closed it: `close()`, a cancelled task, the pool shutting down

`detail` is for operators' eyes: one bounded line that never holds a credential, a header value or body bytes.
"""

from enum import StrEnum

__all__ = ["DETAIL_CHARS", "FaultKind", "UpstreamFault"]

# Chosen: long enough for any message of OpenSSL or the kernel, short enough to keep beside each attempt.
DETAIL_CHARS = 300


class FaultKind(StrEnum):
    """The kinds of the family; the tree in the module's docstring says when each occurs."""

    RESOLVE_FAILED = "resolve_failed"
    ADDRESS_REFUSED = "address_refused"
    CONNECT_FAILED = "connect_failed"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS_FAILED = "tls_failed"
    PROXY_FAILED = "proxy_failed"
    SEND_FAILED = "send_failed"
    HEADERS_TIMEOUT = "headers_timeout"
    FIRST_TOKEN_TIMEOUT = "first_token_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    CUT = "cut"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    CLOSED = "closed"


class UpstreamFault(Exception):
    """One failed exchange with an upstream: `kind` for decisions, `detail` for people."""

    def __init__(self, kind: FaultKind, detail: str = "") -> None:
        self.kind = kind
        self.detail = _one_line(detail)
        super().__init__(kind, self.detail)

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else str(self.kind)


def _one_line(text: str) -> str:
    """Pure. The text with every run of white space and control characters as one space, bounded.

    >>> _one_line("reset\\r\\n by  peer\\x00")
    'reset by peer'
    """
    printable = "".join(c if c.isprintable() else " " for c in text[: 2 * DETAIL_CHARS])
    return " ".join(printable.split())[:DETAIL_CHARS]
