"""Pure. What a dialect is: how a call of one wire form at one endpoint is read, sent on, understood and answered.

The walk knows no form. It carries a `Dialect` and asks it; `dialects` is the table of all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.errors import CallError
from relay.protocols.json_splice import Buffer
from relay.protocols.usage import Usage

__all__ = ["AnswerStream", "Dialect", "ErrorForm", "Request"]


class Request(Protocol):
    """The routing fields of a request, whatever its form.

    `inputs` are texts that may each fill the model's window, `choices` the answers written to all of them together,
    `output_ceiling` the client's own limit on all of these (None: it names none), `echo_bytes` how much of an answer
    may be the request again.
    """

    @property
    def model(self) -> str: ...
    @property
    def stream(self) -> bool: ...
    @property
    def asks_usage(self) -> bool: ...
    @property
    def has_stream_options(self) -> bool: ...
    @property
    def output_ceiling(self) -> int | None: ...
    @property
    def choices(self) -> int: ...
    @property
    def inputs(self) -> int: ...
    @property
    def echo_bytes(self) -> int: ...
    @property
    def reasoning_effort(self) -> str: ...
    @property
    def service_tier(self) -> str: ...
    @property
    def task_id(self) -> str: ...
    @property
    def has_task_id(self) -> bool: ...


class AnswerStream(Protocol):
    """One attempt's answer on its way through: bytes in, bytes for the client out, and what is noted in passing."""

    answered_model: str
    content_events: int
    done: bool
    error: dict[str, object] | None
    finish_reason: str
    service_tier: str
    usage: Usage | None

    @property
    def is_complete(self) -> bool: ...
    @property
    def end_reason(self) -> str: ...
    def feed(self, data: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class BodyMaker(Protocol):
    """The pieces of the body to send upstream; they share the memory of the client's."""

    def __call__(
        self, body: bytes | bytearray, request: Request, *, upstream_model: str
    ) -> Sequence[Buffer]: ...


class StreamMaker(Protocol):
    """`client_model`: the name that the client used; `keep_usage`: whether it asked for usage."""

    def __call__(self, *, client_model: str, keep_usage: bool) -> AnswerStream: ...


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """What a client sees of a call that failed: plain, and as the last event of a stream."""

    status: Callable[[CallError], int]
    headers: Callable[[CallError], list[tuple[bytes, bytes]]]
    body: Callable[[CallError], bytes]
    event: Callable[[CallError], bytes]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One row of the table.

    `protocol` says which upstreams take such a call as it is, `kind` which models can answer it. A plain answer is
    read once, by `read_answer` (ValueError: it is none); the others look at what that gave. `make_stream` is None
    where answers come whole.
    """

    endpoint: str
    protocol: str
    kind: str
    upstream_path: str
    parse_request: Callable[[Buffer], Request]
    make_body: BodyMaker
    make_stream: StreamMaker | None
    read_answer: Callable[[bytes], object]
    answer_error: Callable[[object], dict[str, object] | None]
    is_complete: Callable[[object], bool]
    finish_of: Callable[[Mapping[str, object]], str]
    usage_of: Callable[[Mapping[str, object]], Usage | None]
    output_bytes: Callable[[Mapping[str, object]], int]
    errors: ErrorForm
