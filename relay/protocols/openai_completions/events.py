"""Pure. What the chunks of a completions stream mean, and what a whole answer does.

As in chat: bytes in, bytes for the client out, at event granularity. Usage the client did not ask for is swallowed, the
upstream's model name is replaced by the one the client used, a finish reason is passed once per choice, and what
follows `[DONE]` is dropped.

Unlike in chat an answer without text may be a good one: whoever completes code in an editor is often told that there is
nothing to add. It counts as complete if its usage says that the prompt was read.
"""

from collections.abc import Mapping

import orjson
from msgspec.structs import replace

from relay.protocols.openai_answer import answer_error, renaming
from relay.protocols.openai_completions.usage import is_usable, read_usage, usage_of_answer
from relay.protocols.sse import SseSplitter, event_data
from relay.protocols.usage import Usage

__all__ = ["CompletionStream", "finish_of_answer", "is_complete_answer", "output_bytes"]

DONE = b"data: [DONE]\n\n"


def _choices(answer: object) -> list[dict[str, object]]:
    found = answer.get("choices") if isinstance(answer, Mapping) else None
    return [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []


def _finish(choice: dict[str, object]) -> str:
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) else ""


def is_complete_answer(answer: object) -> bool:
    """Whether a plain answer is a success: text, or an end without any that was counted.

    >>> is_complete_answer({"choices": [{"text": "a"}]}), is_complete_answer({"choices": [{"text": ""}]})
    (True, False)
    """
    choices = _choices(answer)
    if any(choice.get("text") for choice in choices):
        return True
    usage = usage_of_answer(answer) if isinstance(answer, dict) else None
    return usage is not None and is_usable(usage) and any(_finish(choice) for choice in choices)


def finish_of_answer(answer: Mapping[str, object]) -> str:
    """Why the first choice of a plain answer ended, "" if it does not say."""
    choices = _choices(answer)
    return _finish(choices[0]) if choices else ""


def output_bytes(answer: Mapping[str, object]) -> int:
    """How much text a plain answer holds."""
    texts = [text for choice in _choices(answer) if isinstance(text := choice.get("text"), str)]
    return sum(len(text.encode()) for text in texts)


class CompletionStream:
    """One attempt's answer stream on its way to the client."""

    __slots__ = (
        "_client_model",
        "_find",
        "_finished",
        "_keep_usage",
        "_put",
        "_splitter",
        "answered_model",
        "content_events",
        "done",
        "error",
        "finish_reason",
        "service_tier",
        "usage",
    )

    def __init__(self, *, client_model: str, keep_usage: bool) -> None:
        self._splitter = SseSplitter()
        self._client_model = client_model
        self._keep_usage = keep_usage
        self._find = self._put = b""
        self._finished: set[int] = set()
        self.answered_model = ""
        self.content_events = 0
        self.done = False
        self.error: dict[str, object] | None = None
        self.finish_reason = ""
        self.service_tier = ""
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes for the client that `data` completed. Raises sse.EventTooLarge."""
        return b"".join([self._pass(event) for event in self._splitter.feed(data)])

    def finish(self) -> bytes:
        """The bytes left at the end of the body, and the end marker where the upstream left it out."""
        rest = self._splitter.finish()
        passed = self._pass(rest) if rest else b""
        return passed if self.done or self.error is not None or not self._finished else passed + DONE

    @property
    def is_complete(self) -> bool:
        """Terminal event seen (`[DONE]` or a finish reason), and text, or a count of what was used."""
        return (
            self.error is None
            and (self.done or bool(self._finished))
            and (self.content_events > 0 or self.usage is not None)
        )

    @property
    def end_reason(self) -> str:
        """How the stream ended: its finish reason, or in which way the end was short of one."""
        return self.finish_reason or ("done_without_finish" if self.done else "no_terminal_event")

    def _pass(self, raw: bytes) -> bytes:
        if self.done or self.error is not None:
            return b""
        if (
            self.content_events
            and b'"finish_reason":null' in raw
            and b'"error"' not in raw
            and b'"text":""' not in raw
            and (b'"usage"' not in raw or (self._keep_usage and b'"usage":null' in raw))
        ):
            self.content_events += 1
            return raw.replace(self._find, self._put, 1) if self._find else raw
        data = event_data(raw)
        if data is None:
            return raw if self.content_events else b""
        if data.strip() == b"[DONE]":
            self.done = True
            return DONE
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            self.error = {"message": "the stream held an event that is not JSON", "code": "garbage"}
            return b""
        if not isinstance(chunk, dict):
            self.error = {"message": "the stream held an event that is not an object", "code": "garbage"}
            return b""
        return self._pass_chunk(raw, data, chunk)

    def _pass_chunk(self, raw: bytes, data: bytes, chunk: dict[str, object]) -> bytes:
        self.error = answer_error(chunk)
        if self.error is not None:
            return b""
        model = chunk.get("model")
        if not self.answered_model and isinstance(model, str) and model:
            self.answered_model = model
            if model != self._client_model:
                self._find, self._put = renaming(data, self._client_model)
        usage = usage_of_answer(chunk)
        if usage is not None and is_usable(usage):
            self._take_usage(read_usage(usage))
        choices = chunk.get("choices")
        keep = self._look_at_choices(chunk) if choices else self._keep_usage and usage is not None
        return self._render(raw, chunk, has_usage=usage is not None) if keep else b""

    def _take_usage(self, usage: Usage) -> None:
        """The last usage wins, but an absent cache class of a later one does not erase an earlier figure."""
        before = self.usage
        if before is not None and usage.input == before.input and usage.cached_input < before.cached_input:
            usage = replace(before, output=usage.output)
        self.usage = usage

    def _look_at_choices(self, chunk: dict[str, object]) -> bool:
        """Note text and finish of each choice. False if the chunk has nothing for the client."""
        keep = False
        for choice in _choices(chunk):
            index = choice.get("index")
            index = index if isinstance(index, int) else 0
            content = bool(choice.get("text"))
            if content:
                self.content_events += 1
            reason = _finish(choice)
            if reason:
                if index in self._finished and not content:
                    continue
                self._finished.add(index)
                self.finish_reason = self.finish_reason or reason
            keep = True
        return keep

    def _render(self, raw: bytes, chunk: dict[str, object], *, has_usage: bool) -> bytes:
        if has_usage and not self._keep_usage:
            chunk.pop("usage")
            if self._find:
                chunk["model"] = self._client_model
            return b"data: " + orjson.dumps(chunk) + b"\n\n"
        if not self._keep_usage and b'"usage":null' in raw:
            raw = raw.replace(b',"usage":null', b"", 1)
        return raw.replace(self._find, self._put, 1) if self._find else raw
