"""Pure. The bytes of a request up to its body, and the guard that nothing can be smuggled into them.

`build_head` returns everything that stays the same for one upstream (request line, host, headers): keep it
as long as the route and its credential live. The pool appends the last line, `content-length`, itself, from
the body it is given, so a length that does not fit its body cannot be sent.
"""

import re
from collections.abc import Iterable

from relay.upstreams.endpoint import Endpoint

__all__ = ["HeaderPairs", "build_head", "finish_head"]

HeaderPairs = Iterable[tuple[bytes, bytes]]

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
# RFC 9110, 5.5: visible ASCII, space, tab and obs-text. CR, LF and NUL would start a header or a request of
# their own.
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
_TARGET = re.compile(r"[!-~]+\Z")
# The pool decides about framing and about the life of a connection.
_OWNED = frozenset(
    {b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"upgrade", b"expect", b"te"}
)

_METHODS_WITH_BODY = (b"POST ", b"PUT ", b"PATCH ")


def build_head(method: str, endpoint: Endpoint, path: str, headers: HeaderPairs) -> bytes:
    """Return the request's head without `content-length` and the empty line, which the pool adds.

    `host` is added unless the headers name one. Raises ValueError for anything that is not legal in a
    request line or header, and for headers that belong to the pool; the message never quotes a value, which
    may be a credential.

    >>> build_head("POST", Endpoint.parse("http://a.example/v1"), "/x", [(b"Accept", b"*/*")])
    b'POST /v1/x HTTP/1.1\\r\\nhost: a.example\\r\\naccept: */*\\r\\n'
    """
    if not method.isascii() or not method.isupper() or not method.isalpha():
        raise ValueError("The request's method must be upper-case letters.")
    target = endpoint.target(path)
    if not target.startswith("/") or not _TARGET.match(target) or "#" in target:
        raise ValueError("The request's path must start with / and be percent-encoded ASCII.")
    lines = []
    host = endpoint.authority
    for name, value in headers:
        lower = name.lower()
        if not _TOKEN.match(lower):
            raise ValueError("A request header's name has an illegal character.")
        if not _VALUE.match(value):
            raise ValueError(f"The request header {lower.decode()} has an illegal character in its value.")
        if lower in _OWNED:
            raise ValueError(f"The request header {lower.decode()} is set by the connection itself.")
        if lower == b"host":
            host = value
        else:
            lines.append(b"%b: %b\r\n" % (lower, value))
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b" % (method.encode(), target.encode(), host, b"".join(lines))


def finish_head(head: bytes, body_bytes: int) -> bytes:
    """Return `head` with its framing: the length of the body, if it has one, and the empty line.

    RFC 9110, 8.6: only methods that are about a body announce an empty one.
    """
    if body_bytes or head.startswith(_METHODS_WITH_BODY):
        return b"%bcontent-length: %d\r\n\r\n" % (head, body_bytes)
    return head + b"\r\n"
