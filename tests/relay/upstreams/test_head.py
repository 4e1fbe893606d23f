import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.head import build_head, finish_head

A = Endpoint.parse("http://a.example:81/v1")


def test_it_works():
    head = build_head(
        "POST", A, "/chat?x=1", [(b"Content-Type", b"application/json"), (b"authorization", b"Bearer k")]
    )
    assert finish_head(head, 7) == (
        b"POST /v1/chat?x=1 HTTP/1.1\r\n"
        b"host: a.example:81\r\n"
        b"content-type: application/json\r\n"
        b"authorization: Bearer k\r\n"
        b"content-length: 7\r\n"
        b"\r\n"
    )


def test_the_callers_host_wins():
    assert b"\r\nhost: b.example\r\n" in build_head("GET", A, "/", [(b"Host", b"b.example")])


@pytest.mark.parametrize(
    ("method", "body_bytes", "is_announced"),
    [
        ("GET", 0, False),
        ("HEAD", 0, False),
        ("DELETE", 0, False),
        ("OPTIONS", 0, False),
        ("POST", 0, True),
        ("PUT", 0, True),
        ("PATCH", 0, True),
        ("GET", 3, True),
        ("DELETE", 3, True),
    ],
)
def test_a_length_is_announced_where_a_body_is_meant(method, body_bytes, is_announced):
    head = finish_head(build_head(method, A, "/", []), body_bytes)
    assert (b"content-length: %d\r\n" % body_bytes in head) is is_announced
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "pair",
    [
        (b"x\r\ny", b"1"),
        (b"x y", b"1"),
        (b"x:", b"1"),
        (b"", b"1"),
        (b"x\x00", b"1"),
        ("é".encode(), b"1"),
        (b"x", b"s3cret\r\ny: 1"),
        (b"x", b"s3cret\n"),
        (b"x", b"s3cret\r"),
        (b"x", b"s3cret\x00"),
        (b"x", b"s3cret\x7f"),
        (b"host", b"b.example\r\n"),
        (b"Content-Length", b"5"),
        (b"transfer-encoding", b"chunked"),
        (b"Connection", b"close"),
        (b"upgrade", b"x"),
        (b"expect", b"100-continue"),
    ],
)
def test_a_header_that_could_smuggle_is_refused_without_its_value(pair):
    with pytest.raises(ValueError, match="request header") as caught:
        build_head("GET", A, "/", [pair])
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("path", ["x", "/x y", "/x\r\ny", "/x\x00", "/é", "/x#y", "http://b.example/"])
def test_a_path_that_could_smuggle_is_refused(path):
    root = Endpoint.parse("http://a.example")
    with pytest.raises(ValueError, match="path"):
        build_head("GET", root, path, [])


@pytest.mark.parametrize("method", ["", "get", "GET /", "GET\r\n", "GÉT", "G1"])
def test_a_method_that_could_smuggle_is_refused(method):
    with pytest.raises(ValueError, match="method"):
        build_head(method, A, "/", [])


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=4))
def test_a_head_has_exactly_the_lines_it_was_given(headers):
    try:
        head = build_head("GET", A, "/", headers)
    except ValueError:
        return
    lines = head.split(b"\r\n")
    others = [pair for pair in headers if pair[0].lower() != b"host"]
    assert len(lines) == 2 + len(others) + 1
    assert b"\n" not in b"".join(lines)
    assert b"\x00" not in head
