import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.upstreams.decoding import STEP_BYTES, Inflater, decoder_for
from relay.upstreams.faults import FaultKind, UpstreamFault

PLAIN = b"".join(b'data: {"delta": "%d"}\n\n' % n for n in range(40))


def packed(plain: bytes, wbits: int) -> bytes:
    z = zlib.compressobj(wbits=wbits)
    return z.compress(plain) + z.flush()


def raw(plain: bytes) -> bytes:
    return packed(plain, -15)


STREAMS = {
    "gzip": (b"gzip", gzip.compress(PLAIN)),
    "gzip in three members": (b"gzip", b"".join(gzip.compress(p) for p in (PLAIN[:9], b"", PLAIN[9:]))),
    "deflate": (b"deflate", zlib.compress(PLAIN)),
    "deflate without a header": (b"deflate", raw(PLAIN)),
}


def unpack(coding: bytes, pieces: list[bytes]) -> bytes:
    decoder = decoder_for(coding)
    assert decoder is not None
    plain = b""
    for piece in pieces:
        decoder.feed(piece)
        while data := decoder.step():
            assert len(data) <= STEP_BYTES
            plain += data
    decoder.finish()
    return plain


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_undone_at_each_split(name):
    coding, stream = STREAMS[name]
    for at in range(len(stream) + 1):
        assert unpack(coding, [stream[:at], stream[at:]]) == PLAIN
    assert unpack(coding, [bytes([byte]) for byte in stream]) == PLAIN


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=5), st.sampled_from([31, 15, -15]))
def test_any_stream_is_undone_in_any_pieces(plain, cuts, wbits):
    stream = packed(plain, wbits)
    ends = sorted(min(cut, len(stream)) for cut in cuts)
    pieces = [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)], strict=True)]
    assert unpack(b"gzip" if wbits == 31 else b"deflate", pieces) == plain


@pytest.mark.parametrize(
    "size", [STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES, 3 * STEP_BYTES + 77]
)
@pytest.mark.parametrize("byte", [b"\x00", b"ab"])
def test_output_at_the_edge_of_a_step_is_not_lost(size, byte):
    plain = (byte * size)[:size]
    assert unpack(b"gzip", [gzip.compress(plain)]) == plain
    assert unpack(b"deflate", [raw(plain)]) == plain


def test_many_members_in_a_row_are_one_body():
    assert unpack(b"gzip", [gzip.compress(b"x") * 2000]) == b"x" * 2000


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_breaks_off_is_cut(name):
    coding, stream = STREAMS[name]
    for end in range(1, len(stream) if "members" not in name else 20):
        with pytest.raises(UpstreamFault) as caught:
            unpack(coding, [stream[:end]])
        assert caught.value.kind is FaultKind.CUT


def test_nothing_at_all_is_an_empty_body():
    assert unpack(b"gzip", []) == unpack(b"deflate", [b""]) == b""


@pytest.mark.parametrize(
    ("coding", "stream"),
    [
        (b"gzip", b"plain text"),
        (b"gzip", gzip.compress(PLAIN) + b"junk"),
        (b"gzip", gzip.compress(PLAIN)[:-8] + b"\x00" * 8),
        (b"gzip", zlib.compress(PLAIN)),
        (b"deflate", b"\xff\xff\xff\xff"),
        (b"deflate", zlib.compress(PLAIN) + b"junk"),
        (b"deflate", zlib.compress(PLAIN)[:-4] + b"\x00" * 4),
    ],
)
def test_what_is_no_such_stream_is_malformed(coding, stream):
    with pytest.raises(UpstreamFault) as caught:
        unpack(coding, [stream])
    assert caught.value.kind is FaultKind.MALFORMED


@pytest.mark.parametrize("coding", [b"", b"identity", b" Identity "])
def test_identity_needs_no_decoder(coding):
    assert decoder_for(coding) is None


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"compress", b"gzip, gzip", b"gzip, br", b"x"])
def test_other_codings_are_malformed(coding):
    with pytest.raises(UpstreamFault) as caught:
        decoder_for(coding)
    assert caught.value.kind is FaultKind.MALFORMED


def bomb_of(megabytes: int) -> bytes:
    z = zlib.compressobj(9, wbits=31)
    return b"".join(z.compress(bytes(1_000_000)) for _ in range(megabytes)) + z.flush()


def test_a_bomb_is_refused_and_never_unfolded_whole():
    decoder = Inflater(31)
    decoder.feed(bomb_of(40))
    taken = 0
    with pytest.raises(UpstreamFault) as caught:
        while data := decoder.step():
            assert len(data) <= STEP_BYTES
            taken += len(data)
    assert caught.value.kind is FaultKind.TOO_LARGE
    assert taken < 20_000_000


def test_a_long_stream_of_equal_events_is_no_bomb():
    event = b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" the"}}]}\n\n'
    z = zlib.compressobj(wbits=31)
    decoder = Inflater(31)
    taken = 0
    for _ in range(20_000):
        decoder.feed(z.compress(event * 20) + z.flush(zlib.Z_SYNC_FLUSH))
        while data := decoder.step():
            taken += len(data)
    assert taken == len(event) * 400_000
