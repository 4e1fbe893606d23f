"""Pieces of completions streams, and what becomes of them on their way through."""

import json
from collections.abc import Iterator
from typing import Any

from relay.protocols.openai_completions.events import CompletionStream

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def event(*choices: dict[str, Any], **fields: object) -> bytes:
    """One chunk as an upstream sends it."""
    chunk = {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "choices": list(choices),
        "model": "up",
    }
    made = json.dumps({**chunk, **fields}, separators=(",", ":"), ensure_ascii=False)
    return b"data: " + made.encode() + b"\n\n"


def choice(text: str, finish: str | None = None, index: int = 0, **fields: object) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish, **fields}


HEL, LO = event(choice("Hel")), event(choice("lo 驿\u2028站 🐎"))
STOP = event(choice("", "stop"))
BILL = event(usage=USAGE)
DONE = b"data: [DONE]\n\n"
WHOLE = HEL + LO + STOP + BILL + DONE


def read(
    *pieces: bytes, model: str = "up", keep_usage: bool = True, is_ended: bool = True
) -> tuple[bytes, CompletionStream]:
    """What goes to the client of an answer that comes in these pieces, and the stream as it stands then."""
    stream = CompletionStream(client_model=model, keep_usage=keep_usage)
    out = b"".join(stream.feed(piece) for piece in pieces)
    if is_ended and not stream.done:
        out += stream.finish()
    return out, stream


def noted(stream: CompletionStream) -> dict[str, object]:
    """Everything that the books and the commit point look at."""
    return {
        name: getattr(stream, name)
        for name in (
            "content_events", "done", "error", "finish_reason", "usage", "answered_model", "service_tier",
            "is_complete", "end_reason",
        )
    }  # fmt: skip


def chunks(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(part[6:]) for part in out.split(b"\n\n") if part and part != b"data: [DONE]"]


def splits(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    for at in range(len(body) + 1):
        yield body[:at], body[at:]
