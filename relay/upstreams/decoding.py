"""Pure. Compressed answers, undone piece by piece.

An event is delivered as soon as its bytes have come: `zlib` gives back everything that a sync flush of the
sender made readable, and nothing is held to fill a block. Output is produced in bounded steps, only when a
reader asks, so a small answer that unfolds to gigabytes (a "bomb") costs no memory; one that keeps
unfolding is refused.

Offer upstreams `gzip` or nothing. Other codings (br, zstd) are not in the standard library and were not
asked for.
"""

import zlib
from typing import Protocol

from relay.upstreams.faults import FaultKind, UpstreamFault

__all__ = ["Decoder", "Inflater", "decoder_for"]

# One step of output: what a reader gets at most in one piece, and what back-pressure is measured in.
STEP_BYTES = 262_144
# A stream is refused when it has unfolded to more than FLOOR bytes and to more than RATIO times its own size.
# Chosen: nothing that a model writes comes near both, while zlib's bombs unfold a thousand times.
BOMB_FLOOR_BYTES = 16 * 1024 * 1024
BOMB_RATIO = 200

_RAW, _ZLIB, _GZIP = -zlib.MAX_WBITS, zlib.MAX_WBITS, zlib.MAX_WBITS | 16


class Decoder(Protocol):
    """Feed what came with `feed`, take it out with `step` until that returns nothing, check the end with
    `finish`."""

    def feed(self, data: bytes) -> None: ...
    def step(self) -> bytes: ...
    def finish(self) -> None: ...


def decoder_for(coding: bytes) -> Decoder | None:
    """Return what undoes the header value `coding`, None for identity. Raises `malformed` for anything
    else."""
    match coding.strip().lower():
        case b"" | b"identity":
            return None
        case b"gzip" | b"x-gzip":
            return Inflater(_GZIP)
        case b"deflate":
            return Inflater(None)
    raise UpstreamFault(FaultKind.MALFORMED, "the answer is compressed in a way that was not asked for")


class Inflater:
    """gzip (RFC 1952, also several members in a row) or deflate (RFC 9110, 8.4.1.2: zlib, or raw as some
    send it)."""

    __slots__ = ("_fed_bytes", "_given_bytes", "_input", "_is_full", "_wbits", "_z")

    def __init__(self, wbits: int | None) -> None:
        self._wbits = wbits
        self._z = zlib.decompressobj(wbits) if wbits is not None else None
        self._input = b""
        self._is_full = False
        self._fed_bytes = 0
        self._given_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take compressed bytes, in any pieces."""
        self._fed_bytes += len(data)
        self._input = self._input + data if self._input else data

    def step(self) -> bytes:
        """Return up to `STEP_BYTES` of what is readable now, or nothing if more input is needed.

        Raises `malformed` for what is no such stream, `too_large` for a bomb.
        """
        while self._input or self._is_full:
            if self._z is None and not self._start():
                return b""
            given, self._input = self._inflate(self._input)
            if given:
                self._given_bytes += len(given)
                if self._given_bytes > max(BOMB_FLOOR_BYTES, BOMB_RATIO * self._fed_bytes):
                    raise UpstreamFault(
                        FaultKind.TOO_LARGE, "the compressed answer unfolds out of all proportion"
                    )
                return given
        return b""

    def finish(self) -> None:
        """Raise `cut` unless the compressed stream was complete. Call it when `step` has nothing more to
        give."""
        if self._fed_bytes and (self._z is None or not self._z.eof):
            raise UpstreamFault(FaultKind.CUT, "the compressed answer ends before its own end mark")

    def _start(self) -> bool:
        """Tell zlib from raw deflate by its two header bytes (RFC 1950, 2.2). False: too few bytes to
        tell."""
        if self._wbits is None:
            if len(self._input) < 2:
                return False
            first, second = self._input[:2]
            is_zlib = first & 0x0F == 8 and ((first << 8) | second) % 31 == 0
            self._wbits = _ZLIB if is_zlib else _RAW
        self._z = zlib.decompressobj(self._wbits)
        return True

    def _inflate(self, data: bytes) -> tuple[bytes, bytes]:
        """Return output and the input that is left for later."""
        z = self._z
        assert z is not None
        if z.eof:
            # RFC 1952, 2.2: members follow each other. Nothing may follow a deflate stream.
            if self._wbits != _GZIP:
                raise UpstreamFault(FaultKind.MALFORMED, "bytes follow the end of the compressed answer")
            z = self._z = zlib.decompressobj(_GZIP)
        try:
            given = z.decompress(data, STEP_BYTES)
        except zlib.error as exc:
            raise UpstreamFault(FaultKind.MALFORMED, "the compressed answer is damaged") from exc
        # A full step may leave output inside zlib although it has swallowed all of the input.
        self._is_full = len(given) == STEP_BYTES and not z.eof
        return given, z.unused_data if z.eof else z.unconsumed_tail
