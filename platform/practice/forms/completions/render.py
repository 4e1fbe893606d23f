"""Pure. Writes answers in the completions form: chunks of a stream, a whole body.

Source: OpenAI completion types (openai-python 3.3.1, August 2026). A stream has no opening chunk: what comes first is
text, the prompt itself if `echo` asked for it. The choices of one prompt stand together; those beyond `n`
that `best_of` asked for are written and counted, but not shown.
"""

from collections.abc import Iterator

import orjson

from practice.answer import Delta, Kind
from practice.forms.form import Event, EventKind, Exchange
from practice.prompt import Prompt
from practice.usage import place_usage, spell_usage

FINGERPRINT = "fp_practice"
LOGPROB = -0.125

_Object = dict[str, object]
_DONE = Event(EventKind.DONE, b"[DONE]")


def render_events(exchange: Exchange) -> Iterator[Event]:
    """Pure. The events of a stream in order: contents, finishes, usage, end marker."""
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
    prompt, directives = exchange.prompt, exchange.directives
    said: list[list[str]] = [[] for _ in range(prompt.choices)]
    for delta in exchange.answer.deltas():
        if delta.kind is Kind.OPEN:
            said[delta.choice] += _echo(prompt, delta.choice)
        elif delta.text:
            said[delta.choice].append(delta.text)
    choices: list[_Object] = []
    for number, (pieces, reason) in enumerate(zip(said, exchange.answer.finishes, strict=True)):
        shown = _shown_number(prompt, number)
        if shown is not None:
            choices.append(_choice(prompt, shown, pieces, None if reason == "none" else reason))
    body = {**_frame(exchange), "choices": [] if directives.empty else choices}
    usage = None if directives.empty else spell_usage(exchange.counts, directives.usage)
    if usage is not None:
        body["usage"] = usage
    return orjson.dumps(body)


def _frame(exchange: Exchange) -> _Object:
    return {
        "id": exchange.answer_id,
        "object": "text_completion",
        "created": exchange.created,
        "model": exchange.shown_model,
        "system_fingerprint": FINGERPRINT,
    }


def _written(prompt: Prompt) -> int:
    """Choices that are written for each prompt."""
    return prompt.choices // max(len(prompt.parts), 1)


def _shown_number(prompt: Prompt, number: int) -> int | None:
    """The place of a choice among those shown; None for one that is only written."""
    place, rank = divmod(number, _written(prompt))
    shown = prompt.shown or _written(prompt)
    return place * shown + rank if rank < shown else None


def _echo(prompt: Prompt, number: int) -> list[str]:
    text = prompt.echoes[number // _written(prompt)] if prompt.echoes else ""
    return [text] if text else []


def _choice(prompt: Prompt, number: int, pieces: list[str], finish: str | None, start: int = 0) -> _Object:
    return {
        "text": "".join(pieces),
        "index": number,
        "logprobs": _spell_logprobs(pieces, start) if prompt.logprobs and pieces else None,
        "finish_reason": finish,
    }


def _spell_logprobs(pieces: list[str], start: int) -> _Object:
    offsets = [start + sum(map(len, pieces[:place])) for place in range(len(pieces))]
    return {
        "tokens": pieces,
        "token_logprobs": [LOGPROB] * len(pieces),
        "top_logprobs": [{piece: LOGPROB} for piece in pieces],
        "text_offset": offsets,
    }


class _ChunkWriter:
    """Writes the chunks of one stream; usage sits where the asked-for spelling puts it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._kind = exchange.directives.usage
        self._place = place_usage(self._kind)
        self._said = [0] * exchange.prompt.choices
        prompt = exchange.prompt
        reported = self._place != "nowhere"
        asked = prompt.wants_usage_always or exchange.directives.usage_every
        self._every = reported and (asked or self._place == "every")
        self._null = reported and prompt.wants_usage
        self.has_usage_chunk = prompt.wants_usage and self._place in ("chunk", "every")

    def write(self, kind: EventKind, choices: list[_Object], usage: _Object | None = None) -> Event:
        chunk: _Object = {**_frame(self._exchange), "choices": choices}
        if usage is None and self._every and choices:
            usage = spell_usage(self._exchange.counts, self._kind)
        if usage is not None or self._null:
            chunk["usage"] = usage
        return Event(kind, orjson.dumps(chunk))

    def write_delta(self, delta: Delta) -> Event | None:
        """The chunk of one delta; None for an opening without an echo, and a finish that a directive leaves out."""
        if delta.kind is Kind.FINISH:
            return self._write_finish(delta.choice)
        prompt = self._exchange.prompt
        pieces = _echo(prompt, delta.choice) if delta.kind is Kind.OPEN else [delta.text]
        if not pieces:
            return None
        choice = _choice(prompt, delta.choice, pieces, None, self._said[delta.choice])
        self._said[delta.choice] += len(pieces[0])
        return self.write(EventKind.CONTENT, [choice])

    def _write_finish(self, number: int) -> Event | None:
        reason = self._exchange.answer.finishes[number]
        if reason == "none":
            return None
        choice = _choice(self._exchange.prompt, number, [], reason)
        usage = spell_usage(self._exchange.counts, self._kind)
        if self._place == "choice":
            choice["usage"] = usage
        return self.write(EventKind.FINISH, [choice], usage if self._place == "finish" else None)
