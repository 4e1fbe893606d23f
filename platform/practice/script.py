"""Pure. When which bytes go out: an answer as an iterator of steps, misbehaviour included.

A step waits, writes, and may end the connection. Delays count from the time the step before was due, so a
late step does not shift the rest. A script whose last step leaves the connection open lets it be used again.
Scripts are made while they are played; nothing is built ahead of the socket.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from practice.directives import Directives
from practice.forms.form import Event, EventKind
from practice.wire import BodyWriter, Framing, write_comment, write_event

# An event cut off in the middle of its JSON, with bytes that are no UTF-8, as a broken proxy produces.
GARBAGE = b'{"id":"chatcmpl-pra\xff\xfe\x00ctice","choi'
SLOW_PIECES = 20
MAX_BLANK_LINES = 1000


class Act(Enum):
    """What a step does besides writing. FIRST marks the first token: prefill is over."""

    WRITE = "write"
    FIRST = "first"
    CLOSE = "close"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Step:
    """Wait `delay_s` after the last step was due, write `data`, then do `act`."""

    delay_s: float
    data: bytes = b""
    act: Act = Act.WRITE


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a model answers: seconds to the first token, and between chunks."""

    first_s: float
    gap_s: float

    @staticmethod
    def choose(prefill_s: float, gap_ms: float, directives: Directives) -> "Pace":
        """The model's pace, unless a directive says otherwise."""
        first = prefill_s if directives.ttft_ms is None else directives.ttft_ms / 1000
        return Pace(first, (gap_ms if directives.gap_ms is None else directives.gap_ms) / 1000)


def play_stream(
    events: Iterator[Event], failure: Event, writer: BodyWriter, directives: Directives, pace: Pace
) -> Iterator[Step]:
    """Pure. A stream of events; `failure` is the event that `error_event` asks for."""
    headers_s = directives.headers_delay_ms / 1000
    if directives.close == "before":
        yield Step(headers_s, act=Act.CLOSE)
        return
    yield Step(headers_s, writer.start())
    yield from _Stream(writer, directives, pace, failure).play(events)


def play_whole(
    body: bytes,
    writer: BodyWriter,
    directives: Directives,
    *,
    first_s: float | None = None,
    rest_s: float = 0.0,
) -> Iterator[Step]:
    """Pure. A body in one go: ready after `first_s` (None: no model is at work) and `rest_s`."""
    headers_s = directives.headers_delay_ms / 1000
    if directives.close == "before":
        yield Step(headers_s, act=Act.CLOSE)
        return
    due_s = 0.0
    for at_s, data, act in _open_whole(writer, directives, first_s, rest_s):
        yield Step(at_s - due_s, data, act)
        due_s = at_s
    yield from _play_body(body, writer, directives)


def _open_whole(
    writer: BodyWriter, directives: Directives, first_s: float | None, rest_s: float
) -> list[tuple[float, bytes, Act]]:
    """What comes before the body, each with its time from the start: first token, head, blank lines."""
    headers_s = directives.headers_delay_ms / 1000
    ready_s = (first_s or 0.0) + rest_s
    timeline = [] if first_s is None else [(first_s, b"", Act.FIRST)]
    if directives.comments is None:
        timeline.append((max(headers_s, ready_s), writer.start(), Act.WRITE))
    else:
        # Held connections under load: the head at once, then blank lines until the answer is there.
        timeline.append((headers_s, writer.start(), Act.WRITE))
        waits_s = max(ready_s - headers_s, 0.0)
        every_s = max(directives.comments / 1000, waits_s / MAX_BLANK_LINES)
        lines = max(int(waits_s / every_s), 1) if every_s else 1
        for number in range(1, lines + 1):
            at_s = min(headers_s + number * every_s, headers_s + waits_s)
            timeline += [(at_s, data, Act.WRITE) for data in writer.write(b"\n")]
        timeline.append((headers_s + waits_s, b"", Act.WRITE))
    return sorted(timeline, key=lambda moment: moment[0])


def _play_body(body: bytes, writer: BodyWriter, directives: Directives) -> Iterator[Step]:
    split = directives.cut_after is not None or directives.stall_after is not None
    parts = SLOW_PIECES if directives.slow_body_ms else 2 if split else 1
    size = -(-len(body) // parts) or 1
    delay_s = directives.stall_before_ms / 1000
    for number in range(parts):
        delay_s += directives.slow_body_ms / 1000 / parts
        if number == parts // 2 and number:
            if directives.stall_after is not None:
                delay_s += directives.stall_ms / 1000
            if directives.cut_after is not None:
                yield Step(delay_s, act=_cut(directives))
                return
        writes = writer.write(body[number * size : (number + 1) * size])
        for place, data in enumerate(writes):
            yield Step(directives.piece_gap_ms / 1000 if place else delay_s, data)
            delay_s = 0.0
        if writer.framing is Framing.BAD_CHUNK:
            yield Step(0.0, writer.spoil(), Act.CLOSE)
            return
    yield from _end(writer, delay_s)


def _end(writer: BodyWriter, delay_s: float = 0.0) -> Iterator[Step]:
    for data in writer.end():
        yield Step(delay_s, data)
        delay_s = 0.0
    if not writer.head.keep_alive or writer.framing.closes:
        yield Step(delay_s, act=Act.CLOSE)


def _cut(directives: Directives) -> Act:
    return Act.RESET if directives.cut == "reset" else Act.CLOSE


@dataclass(slots=True)
class _Stream:
    """Lays the events of one stream on the time line and breaks them where directives say."""

    writer: BodyWriter
    directives: Directives
    pace: Pace
    failure: Event
    contents: int = field(default=0, init=False)
    _begun: bool = field(default=False, init=False)
    _stalled: bool = field(default=False, init=False)

    def play(self, events: Iterator[Event]) -> Iterator[Step]:
        directives = self.directives
        for event in events:
            if event.kind is EventKind.DONE and directives.done == "none":
                continue
            if event.kind in (EventKind.CONTENT, EventKind.FINISH):
                broken = self._break_off(event)
                if broken is not None:
                    yield from broken
                    return
            data = write_event(event, directives.line_end)
            if event.kind is EventKind.CONTENT and self.contents == directives.garbage:
                end = directives.line_end.encode()
                data = b"data: " + GARBAGE + end + end
            yield from self._write(data, self._wait_before(event), first=self._begin(event))
            if event.kind is EventKind.CONTENT:
                self.contents += 1
                if self.writer.framing is Framing.BAD_CHUNK:
                    yield Step(0.0, self.writer.spoil(), Act.CLOSE)
                    return
        yield from _end(self.writer)

    def _break_off(self, event: Event) -> Iterator[Step] | None:
        """The steps that end the stream in place of this event, or None to go on."""
        directives = self.directives
        if self.contents == directives.cut_after:
            return self._cut_off(event)
        if self.contents == directives.end_after:
            return self._end_early(event, b"")
        if self.contents == directives.error_event:
            return self._end_early(event, write_event(self.failure, directives.line_end))
        return None

    def _cut_off(self, event: Event) -> Iterator[Step]:
        delay_s = self._wait_before(event)
        half = b""
        if self.directives.cut_half:
            whole = write_event(event, self.directives.line_end)
            half = whole[: len(whole) // 2]
        yield from self._write(half, delay_s)
        yield Step(0.0, act=_cut(self.directives))

    def _end_early(self, event: Event, last: bytes) -> Iterator[Step]:
        yield from self._write(last, self._wait_before(event))
        yield from _end(self.writer)

    def _begin(self, event: Event) -> bool:
        """Whether this event is the first after prefill; true once."""
        first = event.kind is not EventKind.OPEN and not self._begun
        self._begun |= first
        return first

    def _wait_before(self, event: Event) -> float:
        """Seconds between the event before and this one."""
        directives = self.directives
        if event.kind is EventKind.OPEN:
            return 0.0
        if not self._begun:
            headers_s = directives.headers_delay_ms / 1000
            wait_s = max(self.pace.first_s - headers_s, 0.0) + directives.stall_before_ms / 1000
        else:
            wait_s = self.pace.gap_s if event.kind is EventKind.CONTENT else 0.0
        if self.contents == directives.stall_after and not self._stalled:
            self._stalled = True
            wait_s += directives.stall_ms / 1000
        return wait_s

    def _write(self, data: bytes, delay_s: float, *, first: bool = False) -> Iterator[Step]:
        directives = self.directives
        if directives.comments is not None:
            comment = write_comment(directives.line_end)
            yield from self._write_now(comment, 0.0)
            every_s = max(directives.comments / 1000, 0.001)
            while directives.comments and delay_s > every_s:
                yield from self._write_now(comment, every_s)
                delay_s -= every_s
        if first:
            yield Step(delay_s, act=Act.FIRST)
            delay_s = 0.0
        yield from self._write_now(data, delay_s)

    def _write_now(self, data: bytes, delay_s: float) -> Iterator[Step]:
        writes = self.writer.write(data) if data else [b""]
        for place, part in enumerate(writes):
            yield Step(self.directives.piece_gap_ms / 1000 if place else delay_s, part)
