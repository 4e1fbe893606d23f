"""Asks the provider without a socket and reads what it would send."""

import json
from typing import Any

from practice.app import Provider, Request
from practice.script import Act


def _play(provider: Provider, path: str, body: dict[str, object]) -> tuple[bytes, bytes]:
    request = Request("POST", path, {"authorization": "Bearer any"}, json.dumps(body).encode())
    reply = provider.respond(request, 0.0, 1_800_000_000)
    sent = b""
    for step in reply.steps:
        if step.act is Act.FIRST and reply.on_first is not None:
            reply.on_first(0.0)
        sent += step.data
    head, _, rest = sent.partition(b"\r\n\r\n")
    return head, rest


def ask(path: str, *bodies: dict[str, object], is_all: bool = False) -> Any:
    """The JSON of a whole answer, or of all of them from one provider."""
    provider = Provider()
    answers = [json.loads(_play(provider, path, body)[1]) for body in bodies]
    return answers if is_all else answers[-1]


def events(path: str, body: dict[str, object]) -> list[Any]:
    """The data of a stream's events, parsed but for the end marker."""
    _, rest = _play(Provider(), path, body)
    found = []
    while rest and rest != b"0\r\n\r\n":
        size, _, rest = rest.partition(b"\r\n")
        piece, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        data = piece.removeprefix(b"data: ").strip()
        found.append("[DONE]" if data == b"[DONE]" else json.loads(data))
    return found


def texts_of(chunks: list[Any]) -> dict[int, str]:
    """What each choice of a stream of completions says."""
    said: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"] if isinstance(chunk, dict) else []:
            said[choice["index"]] = said.get(choice["index"], "") + choice["text"]
    return said
