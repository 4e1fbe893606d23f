"""Bytes on the wire."""

import gzip

from practice.forms.form import Event, EventKind
from practice.wire import BodyWriter, Framing, Head, write_comment, write_event

EVENT = Event(EventKind.CONTENT, b'{"a":1}')


def test_an_event_is_a_data_line_and_a_blank_line() -> None:
    assert write_event(EVENT) == b'data: {"a":1}\n\n'
    assert write_event(EVENT, "\r\n") == b'data: {"a":1}\r\n\r\n'
    assert write_event(EVENT, "\r") == b'data: {"a":1}\r\r'


def test_a_named_event_has_its_name_first() -> None:
    assert write_event(Event(EventKind.CONTENT, b"{}", "ping")) == b"event: ping\ndata: {}\n\n"


def test_a_comment_is_a_line_of_its_own() -> None:
    assert write_comment() == b": keep-alive\n\n"
    assert write_comment("\r\n") == b": keep-alive\r\n\r\n"


def test_a_whole_body_announces_its_length() -> None:
    writer = BodyWriter(Head(200, (("content-type", "text/plain"),)), Framing.LENGTH, length=5)
    assert writer.start() == b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\n"
    assert writer.write(b"hello") == [b"hello"]
    assert writer.end() == []


def test_a_stream_is_chunked() -> None:
    writer = BodyWriter(Head(), Framing.CHUNKED)
    assert writer.start() == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert writer.write(b"x" * 26) == [b"1a\r\n" + b"x" * 26 + b"\r\n"]
    assert writer.write(b"") == []
    assert writer.end() == [b"0\r\n\r\n"]


def test_a_body_that_ends_with_the_connection_says_so() -> None:
    writer = BodyWriter(Head(), Framing.CLOSE)
    assert writer.start() == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    assert writer.write(b"hello") == [b"hello"]
    assert writer.end() == []


def test_a_short_body_announces_more_than_comes() -> None:
    writer = BodyWriter(Head(), Framing.SHORT, length=5)
    assert writer.start() == b"HTTP/1.1 200 OK\r\ncontent-length: 1000005\r\nconnection: close\r\n\r\n"


def test_a_bad_chunk_size_is_none() -> None:
    writer = BodyWriter(Head(), Framing.BAD_CHUNK)
    assert b"transfer-encoding: chunked\r\n" in writer.start()
    assert writer.spoil() == b"zz\r\n"
    assert writer.end() == []


def test_pieces_are_framed_one_by_one() -> None:
    assert BodyWriter(Head(), Framing.CHUNKED, piece_bytes=2).write("é1".encode()) == [
        b"2\r\n\xc3\xa9\r\n",
        b"1\r\n1\r\n",
    ]
    assert BodyWriter(Head(), Framing.CLOSE, piece_bytes=1).write("é".encode()) == [b"\xc3", b"\xa9"]


def test_a_compressed_stream_can_be_read_event_by_event() -> None:
    writer = BodyWriter(Head(), Framing.CLOSE, gzip=True)
    assert b"content-encoding: gzip\r\n" in writer.start()
    parts = [b"".join(writer.write(text)) for text in (b"one", b"two")]
    assert all(parts)
    assert gzip.decompress(b"".join(parts) + b"".join(writer.end())) == b"onetwo"


def test_an_unknown_status_has_a_reason_all_the_same() -> None:
    assert BodyWriter(Head(599), Framing.LENGTH).start().startswith(b"HTTP/1.1 599 Practice\r\n")
