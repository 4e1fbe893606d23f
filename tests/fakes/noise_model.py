"""A small language model that says nothing in particular: a GGUF file with random weights and an alphabet of its own.

`write_model(path)` writes a llama of four layers and width 128, 1 MB, in a tenth of a second; the same bytes every
time. Its prompt is read at a few thousand tokens a second, which is slow enough to tell a cold prompt from a warm one.

Every printable character of ASCII is one token, and the model never chooses any other: so an answer has as many
characters as it has tokens. Its end-of-sequence token is never chosen either, unless the caller's `logit_bias` asks
for it. What is not ASCII is read byte by byte.

The file format is GGUF 3 (ggml-org/ggml, docs/gguf.md): a head, named values, the tensors' names and shapes, then
their data, each at a multiple of 32 bytes. Weights are Q8_0: blocks of a half-precision scale and 32 signed bytes,
so that random bytes are random weights and nobody needs an array library.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CONTEXT_TOKENS", "END_TOKEN", "write_model"]

CONTEXT_TOKENS = 8192
END_TOKEN = 2
_SEED = 7
_WIDTH, _LAYERS, _HEADS, _HIDDEN = 128, 4, 4, 384

# GGUF's numbers for the types of values and of tensors.
_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5
_FORMATS = {_U32: "<I", _F32: "<f", _BOOL: "<?", _I32: "<i"}
_TENSOR_F32, _TENSOR_Q8_0 = 0, 8
_ALIGNMENT = 32
_BLOCK = 32

# llama.cpp's kinds of tokens. A space is written as the sign that SentencePiece has for it.
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_SPECIAL = [("<unk>", _UNKNOWN), ("<s>", _CONTROL), ("</s>", _CONTROL)]
_SILENT = [*_SPECIAL, *((f"<0x{byte:02X}>", _BYTE) for byte in range(256))]
_TOKENS = [*_SILENT, ("▁", _NORMAL), ("\n", _NORMAL), *((chr(code), _NORMAL) for code in range(0x21, 0x7F))]
_CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def _values() -> Iterator[tuple[str, int, Any]]:
    yield "general.architecture", _STRING, "llama"
    yield "general.name", _STRING, "noise"
    yield "general.alignment", _U32, _ALIGNMENT
    yield "llama.context_length", _U32, CONTEXT_TOKENS
    yield "llama.embedding_length", _U32, _WIDTH
    yield "llama.block_count", _U32, _LAYERS
    yield "llama.feed_forward_length", _U32, _HIDDEN
    yield "llama.attention.head_count", _U32, _HEADS
    yield "llama.attention.head_count_kv", _U32, _HEADS
    yield "llama.attention.layer_norm_rms_epsilon", _F32, 1e-5
    yield "llama.rope.dimension_count", _U32, _WIDTH // _HEADS
    yield "llama.vocab_size", _U32, len(_TOKENS)
    yield "tokenizer.ggml.model", _STRING, "llama"
    yield "tokenizer.ggml.tokens", _ARRAY, (_STRING, [text for text, _ in _TOKENS])
    yield "tokenizer.ggml.scores", _ARRAY, (_F32, [0.0] * len(_TOKENS))
    yield "tokenizer.ggml.token_type", _ARRAY, (_I32, [kind for _, kind in _TOKENS])
    yield "tokenizer.ggml.unknown_token_id", _U32, 0
    yield "tokenizer.ggml.bos_token_id", _U32, 1
    yield "tokenizer.ggml.eos_token_id", _U32, END_TOKEN
    yield "tokenizer.ggml.add_space_prefix", _BOOL, False
    yield "tokenizer.chat_template", _STRING, _CHAT


@dataclass(frozen=True, slots=True)
class _Tensor:
    """`shape` begins with the length of a row, as GGUF writes it."""

    name: str
    shape: tuple[int, ...]
    kind: int
    data: bytes


def _tensors() -> Iterator[_Tensor]:
    dice = random.Random(_SEED)

    def noise(name: str, columns: int, rows: int, *, zero_rows: int = 0) -> _Tensor:
        """Uniform weights that keep the size of what they are multiplied with; the first rows are zero."""
        scale = struct.pack("<e", 1 / (74 * columns**0.5))  # 74: the deviation of a random signed byte
        raw = dice.randbytes(columns * (rows - zero_rows))
        zeros = bytes((2 + _BLOCK) * columns // _BLOCK * zero_rows)
        blocks = (scale + raw[at : at + _BLOCK] for at in range(0, len(raw), _BLOCK))
        return _Tensor(f"{name}.weight", (columns, rows), _TENSOR_Q8_0, zeros + b"".join(blocks))

    def ones(name: str) -> _Tensor:
        return _Tensor(f"{name}.weight", (_WIDTH,), _TENSOR_F32, struct.pack("<f", 1.0) * _WIDTH)

    yield noise("token_embd", _WIDTH, len(_TOKENS))
    yield ones("output_norm")
    # The largest logit is above zero, so tokens whose logit is zero are never the likeliest.
    yield noise("output", _WIDTH, len(_TOKENS), zero_rows=len(_SILENT))
    for layer in range(_LAYERS):
        yield ones(f"blk.{layer}.attn_norm")
        for part in ("q", "k", "v", "output"):
            yield noise(f"blk.{layer}.attn_{part}", _WIDTH, _WIDTH)
        yield ones(f"blk.{layer}.ffn_norm")
        yield noise(f"blk.{layer}.ffn_gate", _WIDTH, _HIDDEN)
        yield noise(f"blk.{layer}.ffn_up", _WIDTH, _HIDDEN)
        yield noise(f"blk.{layer}.ffn_down", _HIDDEN, _WIDTH)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _text(value)
    if kind == _ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(_value(inner, item) for item in items)
    return struct.pack(_FORMATS[kind], value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def write_model(path: Path) -> None:
    """Write the model's file."""
    values = [_text(name) + struct.pack("<I", kind) + _value(kind, value) for name, kind, value in _values()]
    tensors = list(_tensors())
    infos, data = b"", b""
    for tensor in tensors:
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        infos += _text(tensor.name) + shape + struct.pack("<IQ", tensor.kind, len(data))
        data += _padded(tensor.data)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    path.write_bytes(_padded(head + b"".join(values) + infos) + data)
