"""Pure. What a request may ask the provider to do wrong, or just differently.

Anywhere in the last user message, or in the last text of a prompt or input: `@practice key=value,key=value@`.
Several such directives add up. Values are percent-decoded (`%2C` is a comma, `%40` an at sign). A key without
a value is a switch, or takes the default named below. N counts content chunks from 0, reasoning and tool
arguments included; *plain* is what an answer without a stream makes of it. An unknown key or an unusable value
is a 400 that names it.

Instead of an answer
    status=CODE           an error with this status, 400 to 599; with `html` any status from 200;
                          with error_event or error_body only the kind of their error
    message=TEXT          its message; also of error_event and error_body
    error_type=TEXT       its type
    error_code=TEXT       its code
    retry_after=S         a `retry-after` header on it
    should_retry=yes|no   an `x-should-retry` header on it
    html                  an HTML page, with status 200 unless `status` says otherwise
    error_body            an error object in a JSON body with status 200
    empty                 status 200 with an empty list of choices and no usage
    empty_body            status 200 and no body at all
    close[=before|after]  before: the connection is dropped unanswered; after (default): `connection: close`

Time (milliseconds)
    headers_delay_ms=MS   status line and headers wait this long
    ttft_ms=MS            the first token comes after this, not after the time the prompt's size takes
    stall_before_ms=MS    between role chunk and first token, on top; plain: between headers and body
    gap_ms=MS             between content chunks, instead of the model's pace
    stall_after=N         after N content chunks wait `stall_ms` on top (default 1000); plain: half way
    stall_ms=MS
    slow_body_ms=MS       plain: the body takes this long, in 20 pieces
    comments[=MS]         `: keep-alive` before every event, and every MS while waiting (0: not then);
                          plain: blank lines before the body

What is said
    tokens=N              number of content chunks of the text, for each choice (not for JSON answers)
    reasoning=N           number of reasoning chunks before it, by any model
    reasoning_key=NAME    what the reasoning is called, instead of `reasoning_content`
    calls=N               call N tools, in turn, whatever the message says
    pad=BYTES             bytes of text in every chunk, from 4
    utf8                  text of one- to four-byte characters
    finish=REASON         another finish reason; `none`: the finish chunk is left out
    answer_model=NAME     another model name in the answer
    usage=KIND            openai (default), none, kimi, deepseek, qwen, vllm or xai: see usage.py
    usage_every           usage on every chunk, as far as it has come

What goes wrong
    cut_after=N           the connection is dropped after N content chunks (0: after the role chunk);
                          plain: half way
    role_only             the same as cut_after=0
    cut_half              the cut falls into the middle of the next event
    cut=close|reset       how it is dropped: FIN (default) or RST
    end_after=N           the body ends properly after N content chunks, without finish reason and end marker
    error_event[=N]       after N content chunks an error event, and the body ends; plain: as error_body
    garbage[=N]           the content chunk N is a broken event with invalid UTF-8; plain: such a body
    done=none             no `data: [DONE]`
    prelude               first a chunk with empty choices, as Azure sends

How the bytes look
    pieces=BYTES          the body is written in pieces of so many bytes, each an HTTP chunk of its own
    piece_gap_ms=MS       time between these pieces
    crlf, cr              line ends of the events
    gzip                  `content-encoding: gzip`, whether accepted or not
    framing=KIND          chunked, close (body ends with the connection), short (a content-length that is
                          never reached) or bad_chunk (an unreadable chunk size after the first content)
    content_type=TEXT     another content type
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

MAX_MS = 600_000
MAX_CHUNKS = 1_000_000
MAX_CHUNK_BYTES = 1_048_576

_FORM = re.compile(r"@practice(?:\s+([^@]*))?@")
_OPENED = re.compile(r"@practice\s+\w+\s*=")


class DirectiveError(ValueError):
    """A directive names an unknown key or a value it cannot use; the text says which."""


@dataclass(frozen=True, slots=True)
class Directives:
    """What the last user message asked for; None and False mean: as usual."""

    status: int | None = None
    message: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    retry_after: float | None = None
    should_retry: bool | None = None
    html: bool = False
    error_body: bool = False
    empty: bool = False
    empty_body: bool = False
    close: Literal["before", "after"] | None = None
    headers_delay_ms: float = 0.0
    ttft_ms: float | None = None
    stall_before_ms: float = 0.0
    gap_ms: float | None = None
    stall_after: int | None = None
    stall_ms: float = 1000.0
    slow_body_ms: float = 0.0
    comments: float | None = None
    tokens: int | None = None
    reasoning: int | None = None
    reasoning_key: str = "reasoning_content"
    calls: int | None = None
    pad: int | None = None
    utf8: bool = False
    finish: str | None = None
    answer_model: str | None = None
    usage: str = "openai"
    usage_every: bool = False
    cut_after: int | None = None
    cut_half: bool = False
    cut: Literal["close", "reset"] = "close"
    end_after: int | None = None
    error_event: int | None = None
    garbage: int | None = None
    done: Literal["none"] | None = None
    prelude: bool = False
    pieces: int | None = None
    piece_gap_ms: float = 0.0
    line_end: str = "\n"
    gzip: bool = False
    framing: Literal["close", "short", "bad_chunk", "chunked"] | None = None
    content_type: str | None = None

    @property
    def least_chunks(self) -> int:
        """Content chunks an answer needs so that what was asked for at chunk N can happen."""
        places = (self.cut_after, self.end_after, self.error_event, self.garbage, self.stall_after)
        return max((place + 1 for place in places if place is not None), default=0)


def parse_directives(text: str) -> Directives:
    """Pure. The directives in a message. Raises DirectiveError with every key that is unknown or unusable.

    >>> parse_directives("hello @practice status=429, retry_after=2@").retry_after
    2.0
    """
    changes: dict[str, object] = {}
    wrong: list[str] = []
    for found in _FORM.finditer(text):
        for item in (found[1] or "").split(","):
            key, _, value = item.partition("=")
            if item.strip():
                _read_item(key.strip(), unquote(value.strip()), changes, wrong)
    if _OPENED.search(_FORM.sub("", text)):
        wrong.append("a directive has no closing @")
    if wrong:
        raise DirectiveError("@practice: " + "; ".join(wrong))
    return _check(replace(Directives(), **changes))  # type: ignore[arg-type]  # readers give each field its type


def remove_directives(text: str) -> str:
    """Pure. The message without its directives."""
    return _FORM.sub("", text).strip()


def _read_item(key: str, value: str, changes: dict[str, object], wrong: list[str]) -> None:
    reader = KEYS.get(key)
    if reader is None:
        wrong.append(f"unknown key {key[:40]!r}")
        return
    try:
        name, read = reader(value)
    except ValueError as exc:
        wrong.append(f"{key}={value[:40]} is not {exc}")
        return
    changes[name or key] = read


def _check(directives: Directives) -> Directives:
    """The same directives, or DirectiveError when two of them make no sense together."""
    if directives.status is not None and directives.status < 400 and not directives.html:
        raise DirectiveError(
            f"@practice: status={directives.status} is not an error; add html for a page with it"
        )
    if directives.status in (204, 205, 304):
        raise DirectiveError(f"@practice: status={directives.status} has no body")
    return directives


# A reader takes the text of a value and gives (field or "" for the key's own, value). It raises ValueError
# with what would have been right.
_Reader = Callable[[str], tuple[str, Any]]


def _whole(low: int, high: int, bare: int | None = None) -> _Reader:
    def read(value: str) -> tuple[str, int]:
        if not value and bare is not None:
            return "", bare
        if not value.isascii() or not value.isdigit() or len(value) > 9 or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return "", int(value)

    return read


def _decimal(high: float, bare: float | None = None) -> _Reader:
    def read(value: str) -> tuple[str, float]:
        if not value and bare is not None:
            return "", bare
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value) or float(value) > high:
            raise ValueError(f"a number from 0 to {high:g}")
        return "", float(value)

    return read


def _switch(field: str = "", on: object = True, off: object = False) -> _Reader:
    def read(value: str) -> tuple[str, object]:
        if value.lower() in ("", "1", "yes", "true", "on"):
            return field, on
        if value.lower() in ("0", "no", "false", "off"):
            return field, off
        raise ValueError("yes or no")

    return read


def _one_of(*values: str, bare: str = "") -> _Reader:
    def read(value: str) -> tuple[str, str]:
        if (value or bare) not in values:
            raise ValueError("one of " + ", ".join(values))
        return "", value or bare

    return read


def _text(longest: int) -> _Reader:
    def read(value: str) -> tuple[str, str]:
        if not 1 <= len(value) <= longest or any(ord(character) < 32 for character in value):
            raise ValueError(f"text of 1 to {longest} characters without control characters")
        return "", value

    return read


def _header(longest: int) -> _Reader:
    def read(value: str) -> tuple[str, str]:
        if not re.fullmatch(rf"[\x20-\x7e]{{1,{longest}}}", value):
            raise ValueError(f"1 to {longest} visible ASCII characters")
        return "", value

    return read


_ms, _place = _decimal(MAX_MS), _whole(0, MAX_CHUNKS)

KEYS: dict[str, _Reader] = {
    "status": _whole(200, 599),
    "message": _text(500),
    "error_type": _text(100),
    "error_code": _text(100),
    "retry_after": _decimal(1_000_000),
    "should_retry": _switch(),
    "html": _switch(),
    "error_body": _switch(),
    "empty": _switch(),
    "empty_body": _switch(),
    "close": _one_of("before", "after", bare="after"),
    "headers_delay_ms": _ms,
    "ttft_ms": _ms,
    "stall_before_ms": _ms,
    "gap_ms": _ms,
    "stall_after": _place,
    "stall_ms": _ms,
    "slow_body_ms": _ms,
    "comments": _decimal(MAX_MS, bare=0.0),
    "tokens": _place,
    "reasoning": _place,
    "reasoning_key": _text(64),
    "calls": _whole(0, 16),
    "pad": _whole(4, MAX_CHUNK_BYTES),
    "utf8": _switch(),
    "finish": _text(64),
    "answer_model": _text(200),
    "usage": _one_of("openai", "none", "kimi", "deepseek", "qwen", "vllm", "xai"),
    "usage_every": _switch(),
    "cut_after": _place,
    "role_only": _switch("cut_after", 0, None),
    "cut_half": _switch(),
    "cut": _one_of("close", "reset"),
    "end_after": _place,
    "error_event": _whole(0, MAX_CHUNKS, bare=0),
    "garbage": _whole(0, MAX_CHUNKS, bare=0),
    "done": _one_of("none"),
    "prelude": _switch(),
    "pieces": _whole(1, MAX_CHUNK_BYTES),
    "piece_gap_ms": _ms,
    "crlf": _switch("line_end", "\r\n", "\n"),
    "cr": _switch("line_end", "\r", "\n"),
    "gzip": _switch(),
    "framing": _one_of("chunked", "close", "short", "bad_chunk"),
    "content_type": _header(100),
}
