"""Pure. What the chunks of a chat stream mean, read with as little work as the chunk allows.

A stream is fed as bytes and gives back the bytes for the client (`ChatStream.feed`), at event granularity: usage the
client did not ask for is swallowed, the upstream's model name is replaced by the one the client used, a finish reason
is passed once per choice, and what follows `[DONE]` is dropped. On the way it notes what the books and the commit
point need: content seen, finish, usage, error.

After the first content a chunk without usage, error or finish reason is only looked at by substring (an unescaped
`"usage"` cannot stand inside a JSON string); everything else is parsed.
"""

from collections.abc import Mapping

import orjson
from msgspec.structs import replace

from relay.protocols.openai_answer import answer_error, renaming
from relay.protocols.openai_chat.usage import is_usable, read_usage, usage_of_answer
from relay.protocols.sse import SseSplitter, event_data
from relay.protocols.usage import Usage

__all__ = [
    "ChatStream",
    "finish_of_answer",
    "has_content",
    "is_complete_answer",
    "output_bytes",
]

DONE = b"data: [DONE]\n\n"

_UPSTREAM_FAULT_REASONS = frozenset({"insufficient_system_resource", "network_error", "error"})
_OTHER_CONTENT = (
    "reasoning_content",
    "reasoning",
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
    "reasoning_details",
)


def has_content(delta: object) -> bool:
    """Whether a delta (or a whole message) carries content: non-empty text, reasoning, tool call or audio."""
    if not isinstance(delta, dict):
        return False
    if delta.get("content"):
        return True
    for name in _OTHER_CONTENT:  # noqa: SIM110 - a generator costs more than the loop, on every call
        if delta.get(name):
            return True
    return False


def is_complete_answer(answer: object) -> bool:
    """Whether a plain answer is a success: at least one choice with content, or a usage with tokens."""
    if not isinstance(answer, dict):
        return False
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        return False
    for choice in choices:
        if isinstance(choice, dict) and has_content(choice.get("message")):
            return True
    usage = usage_of_answer(answer)
    return usage is not None and is_usable(usage) and read_usage(usage).output > 0


def finish_of_answer(answer: Mapping[str, object]) -> str:
    """Why the first choice of a plain answer ended, "" if it does not say."""
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    reason = first.get("finish_reason") if isinstance(first, dict) else None
    return reason if isinstance(reason, str) else ""


def output_bytes(answer: Mapping[str, object]) -> int:
    """How large the messages of a plain answer are."""
    choices = answer.get("choices")
    found = choices if isinstance(choices, list) else []
    return len(orjson.dumps([choice.get("message") for choice in found if isinstance(choice, dict)]))


class ChatStream:
    """One attempt's answer stream on its way to the client."""

    __slots__ = (
        "_client_model",
        "_created",
        "_find",
        "_finished",
        "_id",
        "_keep_usage",
        "_put",
        "_splitter",
        "_usage_sent",
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
        self._id: object = None
        self._created: object = None
        self._find = b""
        self._put = b""
        self._finished: set[int] = set()
        self._usage_sent = False
        self.answered_model = ""
        self.content_events = 0
        self.done = False
        self.error: dict[str, object] | None = None
        self.finish_reason = ""
        self.service_tier = ""
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes for the client that `data` completed. Raises sse.EventTooLarge."""
        events = self._splitter.feed(data)
        if len(events) == 1:
            return self._pass(events[0])
        return b"".join([self._pass(event) for event in events])

    def finish(self) -> bytes:
        """The bytes left at the end of the body, and the end marker where the upstream left it out."""
        rest = self._splitter.finish()
        passed = self._pass(rest) if rest else b""
        if not self.done and self.error is None and self._finished:
            passed += self._late_usage() + DONE
        return passed

    @property
    def is_complete(self) -> bool:
        """Terminal event seen (`[DONE]` or a finish reason), and at least one content part or a usage."""
        return (
            self.error is None
            and (self.done or bool(self._finished))
            and (self.content_events > 0 or (self.usage is not None and self.usage.output > 0))
        )

    @property
    def end_reason(self) -> str:
        """How the stream ended: its finish reason, or in which way the end was short of one."""
        if self.finish_reason:
            return self.finish_reason
        return "done_without_finish" if self.done else "no_terminal_event"

    def _pass(self, raw: bytes) -> bytes:
        if self.done or self.error is not None:
            return b""
        if (
            self.content_events
            and b'"finish_reason":null' in raw
            and b'"error"' not in raw
            and (b'"usage"' not in raw or (self._keep_usage and b'"usage":null' in raw))
        ):
            self.content_events += 1
            return raw.replace(self._find, self._put, 1) if self._find else raw
        data = event_data(raw)
        if data is None:
            return raw if self.content_events else b""
        if data.strip() == b"[DONE]":
            self.done = True
            return self._late_usage() + DONE
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            self.error = {"message": "the stream held an event that is not JSON", "code": "garbage"}
            return b""
        return self._pass_chunk(raw, data, chunk)

    def _pass_chunk(self, raw: bytes, data: bytes, chunk: object) -> bytes:
        if not isinstance(chunk, dict):
            self.error = {"message": "the stream held an event that is not an object", "code": "garbage"}
            return b""
        self.error = answer_error(chunk)
        if self.error is not None:
            return b""
        if not self.answered_model:
            self._learn_model(data, chunk)
        tier = chunk.get("service_tier")
        if isinstance(tier, str):
            self.service_tier = tier[:32]
        usage = usage_of_answer(chunk)
        if usage is not None and is_usable(usage):
            self._take_usage(read_usage(usage))
        keep = self._look_at_choices(chunk)
        if self.error is not None or not keep:
            return b""
        return self._render(raw, chunk, has_usage=usage is not None)

    def _take_usage(self, usage: Usage) -> None:
        """The last usage wins, but an absent cache class of a later one does not erase an earlier figure."""
        if (
            self.usage is not None
            and usage.input == self.usage.input
            and usage.uncached_input > self.usage.uncached_input
        ):
            usage = replace(self.usage, output=usage.output, reasoning=usage.reasoning)
        self.usage = usage

    def _learn_model(self, data: bytes, chunk: dict[str, object]) -> None:
        """From the first chunk that names a model: how that is spelled in this stream, and what the client reads."""
        model = chunk.get("model")
        if not isinstance(model, str) or not model:
            return
        self.answered_model = model
        self._id, self._created = chunk.get("id"), chunk.get("created")
        if model != self._client_model:
            self._find, self._put = renaming(data, self._client_model)

    def _look_at_choices(self, chunk: dict[str, object]) -> bool:
        """Note content and finish of each choice. False if the chunk has nothing for the client."""
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            # Usage-only chunks; also Azure's first one with prompt_filter_results.
            return self._keep_usage and isinstance(chunk.get("usage"), dict)
        keep = False
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            index = choice.get("index")
            index = index if isinstance(index, int) else 0
            content = has_content(choice.get("delta"))
            if content:
                self.content_events += 1
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                if reason in _UPSTREAM_FAULT_REASONS:
                    self.error = {"message": "the upstream gave up", "code": reason}
                    return False
                if index in self._finished and not content:
                    continue
                self._finished.add(index)
                self.finish_reason = self.finish_reason or reason
            keep = True
        return keep

    def _render(self, raw: bytes, chunk: dict[str, object], *, has_usage: bool) -> bytes:
        if not has_usage:
            if not self._keep_usage and b'"usage":null' in raw:
                raw = raw.replace(b',"usage":null', b"", 1)
            return raw.replace(self._find, self._put, 1) if self._find else raw
        if self._keep_usage:
            self._usage_sent = self._usage_sent or isinstance(chunk.get("usage"), dict)
            return raw.replace(self._find, self._put, 1) if self._find else raw
        chunk.pop("usage", None)
        for choice in chunk.get("choices") or []:  # type: ignore[attr-defined]
            if isinstance(choice, dict):
                choice.pop("usage", None)
        if self._find:
            chunk["model"] = self._client_model
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def _late_usage(self) -> bytes:
        """A usage chunk for a client that asked and an upstream that hid its usage in a choice (Kimi)."""
        if not self._keep_usage or self._usage_sent or self.usage is None:
            return b""
        self._usage_sent = True
        usage = self.usage
        body = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._client_model,
            "choices": [],
            "usage": {
                "prompt_tokens": usage.input,
                "completion_tokens": usage.output,
                "total_tokens": usage.input + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cached_input},
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
            },
        }
        return b"data: " + orjson.dumps(body) + b"\n\n"
