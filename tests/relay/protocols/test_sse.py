"""Event streams cut at every place, with every kind of line end."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.protocols import sse
from relay.protocols.sse import EventTooLarge, SseSplitter, event_data

LINE_ENDS = [b"\n", b"\r\n", b"\r"]
STREAM = (
    ": connected\n\n"
    'data: {"a":1}\n\n'
    "event: note\nid: 7\ndata: one\ndata: two\n\n"
    "data:no space\n\n"
    "data:  two spaces\n\n"
    "data\n\n"
    "retry: 10\n\n"
    "\n"
    "data: 驿站 \u2028 \u2029 \u0085 \u000b\U0001f40e\n\n"
    "data: last\n\n"
).encode()
DATA = [
    b'{"a":1}',
    b"one\ntwo",
    b"no space",
    b" two spaces",
    b"",
    "驿站 \u2028 \u2029 \u0085 \u000b\U0001f40e".encode(),
    b"last",
]


def read(*pieces: bytes) -> list[bytes]:
    """The raw events of a body that comes in these pieces."""
    splitter = SseSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    rest = splitter.finish()
    return [*events, rest] if rest else events


def datas(events: list[bytes]) -> list[bytes]:
    return [data for event in events if (data := event_data(event)) is not None]


def split_in_two(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    for at in range(len(body) + 1):
        yield body[:at], body[at:]


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_it_works(line_end: bytes) -> None:
    assert datas(read(STREAM.replace(b"\n", line_end))) == DATA


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_every_split_gives_the_same_events(line_end: bytes) -> None:
    body = STREAM.replace(b"\n", line_end)
    whole = read(body)
    for pieces in split_in_two(body):
        assert read(*pieces) == whole


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_single_bytes_give_the_same_events(line_end: bytes) -> None:
    body = STREAM.replace(b"\n", line_end)
    assert read(*(body[at : at + 1] for at in range(len(body)))) == read(body)


def test_events_keep_their_bytes() -> None:
    assert b"".join(read(STREAM)) == STREAM


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
def test_other_line_ends_become_line_feeds(line_end: bytes) -> None:
    assert b"".join(read(STREAM.replace(b"\n", line_end))) == STREAM


def test_an_event_is_given_as_soon_as_it_is_complete() -> None:
    for end in (b"\n\n", b"\r\r", b"\r\n\r", b"\n\r", b"\r\n\n"):
        splitter = SseSplitter()
        assert splitter.feed(b"data: x") == []
        assert splitter.feed(end) == [b"data: x\n\n"]


def test_line_ends_may_be_mixed() -> None:
    body = b"data: 1\r\n\ndata: 2\n\rdata: 3\r\r\ndata: 4\n\r\ndata: 5\r\n\r\n"
    whole = read(body)
    assert datas(whole) == [b"1", b"2", b"3", b"4", b"5"]
    for pieces in split_in_two(body):
        assert read(*pieces) == whole


def test_separators_of_unicode_end_no_line() -> None:
    for separator in ("\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u001c", "\u001e"):
        body = f"data: a{separator}{separator}b\n\n".encode()
        for pieces in split_in_two(body):
            assert datas(read(*pieces)) == [f"a{separator}{separator}b".encode()]


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_a_byte_order_mark_at_the_start_is_left_out(line_end: bytes) -> None:
    body = b"\xef\xbb\xbf" + b"data: 1\n\ndata: \xef\xbb\xbf2\n\n".replace(b"\n", line_end)
    for pieces in split_in_two(body):
        assert read(*pieces) == [b"data: 1\n\n", b"data: \xef\xbb\xbf2\n\n"]


def test_half_a_byte_order_mark_is_no_mark() -> None:
    assert read(b"\xef\xbb") == [b"\xef\xbb\n\n"]
    assert read(b"\xef", b"\xbb", b"data: 1\n\n") == [b"\xef\xbbdata: 1\n\n"]


def test_an_event_without_its_empty_line_counts_at_the_end() -> None:
    for rest in (b"data: x", b"data: x\n", b"data: x\r", b"data: x\r\n"):
        assert datas(read(b"data: 1\n\n", rest)) == [b"1", b"x"]


def test_empty_lines_alone_are_nothing() -> None:
    assert datas(read(b"\n\n\n\r\n\r\r")) == []
    assert SseSplitter().finish() == b""


def test_an_event_in_many_pieces_costs_no_more_than_its_size() -> None:
    splitter = SseSplitter()
    pieces = [b"data: ", *[b"x" * 1000] * 2000, b"\n\n"]
    events = [event for piece in pieces for event in splitter.feed(piece)]
    assert [len(event) for event in events] == [6 + 2_000_000 + 2]


@pytest.mark.parametrize("end", [b"", b"\r"])
def test_an_event_without_end_is_refused_at_the_limit(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    splitter = SseSplitter()
    splitter.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLarge):
        splitter.feed(b"x" * 10 + end)


def test_many_small_events_are_no_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    assert len(read(b"data: x\n\n" * 1000)) == 1000


LINES = st.sampled_from(
    [
        b"data: x",
        b"data:",
        b"data",
        b": c",
        b"event: e",
        b"",
        b"",
        b"datas: x",
        b"data: \xf0\x9f\x90\x8e",
        b"\xff",
    ]
)


@given(
    st.lists(st.tuples(LINES, st.sampled_from(LINE_ENDS)), max_size=12),
    st.lists(st.integers(0, 120), max_size=8),
)
def test_any_split_of_any_stream_gives_the_same(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    body = b"".join(line + end for line, end in lines)
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    pieces = [body[first:last] for first, last in pairwise(places)]
    assert read(*pieces) == read(body)


@given(st.lists(st.tuples(LINES, st.sampled_from(LINE_ENDS)), max_size=12))
def test_the_data_is_what_the_standard_says(lines: list[tuple[bytes, bytes]]) -> None:
    body = b"".join(line + end for line, end in lines)
    expected: list[bytes] = []
    pending: list[bytes] = []
    for line in [*body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        if line == b"data" or line.startswith(b"data:"):
            pending.append(line[5:].removeprefix(b" "))
        elif not line and pending:
            expected.append(b"\n".join(pending))
            pending = []
    assert datas(read(body)) == expected
