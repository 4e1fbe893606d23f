"""Pure. Writes answers in the embeddings form. The same text always gets the same vector, of length one.

Source: OpenAI embedding types (openai-python 3.3.1, August 2026): vectors as numbers, or as base64 of little-endian
32-bit floats. Fewer dimensions are the first ones of the whole vector, brought to length one again.
"""

import math
import struct
from base64 import b64encode
from collections.abc import Iterator
from hashlib import shake_256

import orjson

from practice.forms.form import Event, Exchange
from practice.usage import spell_usage

_Object = dict[str, object]


def render_events(exchange: Exchange) -> Iterator[Event]:
    """Pure. Nothing: embeddings are not streamed."""
    return iter(())


def render_body(exchange: Exchange) -> bytes:
    """Pure. A whole answer as JSON."""
    prompt, directives = exchange.prompt, exchange.directives
    data = [
        {"object": "embedding", "index": place, "embedding": _spell(exchange, part)}
        for place, part in enumerate(prompt.parts)
    ]
    body: _Object = {
        "object": "list",
        "data": [] if directives.empty else data,
        "model": exchange.shown_model,
    }
    if not directives.empty and spell_usage(exchange.counts, directives.usage) is not None:
        tokens = exchange.counts.prompt
        body["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return orjson.dumps(body)


def _spell(exchange: Exchange, part: bytes) -> str | list[float]:
    model = exchange.model
    packed = pack_vector(model.name, part, model.dimensions, exchange.prompt.dimensions)
    if exchange.prompt.base64:
        return b64encode(packed).decode()
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


def pack_vector(model: str, part: bytes, whole: int, kept: int | None = None) -> bytes:
    """Pure. The vector of a text as little-endian 32-bit floats: of `whole` dimensions the first `kept`.

    >>> pack_vector("m", b"a", 8) == pack_vector("m", b"a", 8) != pack_vector("m", b"b", 8)
    True
    """
    drawn = shake_256(model.encode() + b"\0" + part).digest(2 * whole)
    numbers = struct.unpack(f"<{whole}h", drawn)[: kept or whole]
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))
