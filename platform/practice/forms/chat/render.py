"""Pure. Writes answers in the chat completions form: chunks of a stream, a whole body.

Source: OpenAI chat completion and chunk types (openai-python 3.3.1, August 2026). Every chunk carries
`usage: null` when the request asked for usage, and the field is absent when it did not.
"""

from collections.abc import Iterator

import orjson

from practice.answer import Delta, Kind
from practice.forms.form import Event, EventKind, Exchange
from practice.usage import place_usage, spell_usage

FINGERPRINT = "fp_practice"

_Object = dict[str, object]
_DONE = Event(EventKind.DONE, b"[DONE]")


def render_events(exchange: Exchange) -> Iterator[Event]:
    """Pure. The events of a stream in order: opening chunks, contents, finishes, usage, end marker."""
    writer = _ChunkWriter(exchange)
    directives = exchange.directives
    if directives.prelude or directives.empty:
        yield writer.write(EventKind.OPEN, [])
    if not directives.empty:
        for delta in exchange.answer.deltas():
            event = writer.write_delta(delta)
            if event is not None:
                yield event
        if writer.has_usage_chunk:
            yield writer.write(EventKind.USAGE, [], spell_usage(exchange.counts, directives.usage))
    yield _DONE


def render_body(exchange: Exchange) -> bytes:
    """Pure. A whole answer as JSON."""
    directives = exchange.directives
    messages = [_Message() for _ in range(exchange.prompt.choices)]
    for delta in exchange.answer.deltas():
        messages[delta.choice].add(delta)
    choices = [
        {
            "index": number,
            "message": message.build(directives.reasoning_key),
            "logprobs": None,
            "finish_reason": None if reason == "none" else reason,
        }
        for number, (message, reason) in enumerate(zip(messages, exchange.answer.finishes, strict=True))
    ]
    body = {
        "id": exchange.answer_id,
        "object": "chat.completion",
        "created": exchange.created,
        "model": exchange.shown_model,
        "choices": [] if directives.empty else choices,
        "system_fingerprint": FINGERPRINT,
    }
    usage = None if directives.empty else spell_usage(exchange.counts, directives.usage)
    if usage is not None:
        body["usage"] = usage
    return orjson.dumps(body)


class _ChunkWriter:
    """Writes the chunks of one stream; usage sits where the asked-for spelling puts it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._kind = exchange.directives.usage
        self._place = place_usage(self._kind)
        prompt = exchange.prompt
        reported = self._place != "nowhere"
        asked = prompt.wants_usage_always or exchange.directives.usage_every
        self._every = reported and (asked or self._place == "every")
        self._null = reported and prompt.wants_usage
        self.has_usage_chunk = prompt.wants_usage and self._place in ("chunk", "every")

    def write(self, kind: EventKind, choices: list[_Object], usage: _Object | None = None) -> Event:
        exchange = self._exchange
        chunk: _Object = {
            "id": exchange.answer_id,
            "object": "chat.completion.chunk",
            "created": exchange.created,
            "model": exchange.shown_model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }
        if usage is None and self._every and choices:
            usage = spell_usage(exchange.counts, self._kind)
        if usage is not None or self._null:
            chunk["usage"] = usage
        return Event(kind, orjson.dumps(chunk))

    def write_delta(self, delta: Delta) -> Event | None:
        """The chunk of one delta; None for a finish that a directive leaves out."""
        if delta.kind is Kind.FINISH:
            return self._write_finish(delta)
        kind = EventKind.OPEN if delta.kind is Kind.OPEN else EventKind.CONTENT
        return self.write(kind, [_choice(delta.choice, self._spell(delta))])

    def _write_finish(self, delta: Delta) -> Event | None:
        reason = self._exchange.answer.finishes[delta.choice]
        if reason == "none":
            return None
        choice = _choice(delta.choice, {}, reason)
        usage = spell_usage(self._exchange.counts, self._kind)
        if self._place == "choice":
            choice["usage"] = usage
        return self.write(EventKind.FINISH, [choice], usage if self._place == "finish" else None)

    def _spell(self, delta: Delta) -> _Object:
        match delta.kind:
            case Kind.OPEN:
                return {"role": "assistant", "content": "", "refusal": None}
            case Kind.REASONING:
                return {self._exchange.directives.reasoning_key: delta.text}
            case Kind.CALL:
                return {"tool_calls": [_open_call(delta)]}
            case Kind.ARGUMENTS:
                said = (
                    {"custom": {"input": delta.text}}
                    if delta.custom
                    else {"function": {"arguments": delta.text}}
                )
                return {"tool_calls": [{"index": delta.call, **said}]}
        return {"content": delta.text}


class _Message:
    """Collects the deltas of one choice into a message."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._calls: list[tuple[Delta, list[str]]] = []

    def add(self, delta: Delta) -> None:
        match delta.kind:
            case Kind.REASONING:
                self._reasoning.append(delta.text)
            case Kind.TEXT:
                self._text.append(delta.text)
            case Kind.CALL:
                self._calls.append((delta, []))
            case Kind.ARGUMENTS:
                self._calls[delta.call][1].append(delta.text)

    def build(self, reasoning_key: str) -> _Object:
        text = None if self._calls else "".join(self._text)
        message: _Object = {"role": "assistant", "content": text, "refusal": None}
        if self._reasoning:
            message[reasoning_key] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [_whole_call(delta, "".join(said)) for delta, said in self._calls]
        return message


def _choice(number: int, delta: _Object, finish: str | None = None) -> _Object:
    return {"index": number, "delta": delta, "logprobs": None, "finish_reason": finish}


def _open_call(delta: Delta) -> _Object:
    return {"index": delta.call, **_whole_call(delta, "")}


def _whole_call(delta: Delta, said: str) -> _Object:
    if delta.custom:
        return {"id": delta.call_id, "type": "custom", "custom": {"name": delta.text, "input": said}}
    return {"id": delta.call_id, "type": "function", "function": {"name": delta.text, "arguments": said}}
