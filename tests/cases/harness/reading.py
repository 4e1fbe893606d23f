"""Pure. What a client reads of an answer, in each dialect: text, thinking, calls, finish, usage, and how it ended.

Section 5 of the README of the cases. A plain answer and a stream give the same `Reading`.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Event", "Reading", "parse_events", "read_plain", "read_stream"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: its type, its data as text, and as JSON where it is (else None)."""

    event: str
    raw: str
    data: Any


@dataclass(slots=True)
class Reading:
    """`finish` is None where the answer says none; `finishes` counts how often it was said."""

    text: str = ""
    thinking: str = ""
    calls: list[Json] = field(default_factory=list)
    finish: str | None = None
    finishes: int = 0
    usage: Json | None = None
    ends_with: str = "eof"

    def say_finish(self, reason: object) -> None:
        if isinstance(reason, str):
            self.finish = reason
            self.finishes += 1


def parse_events(body: bytes) -> list[Event]:
    """The events of a stream (WHATWG HTML, 9.2.6), or the elements of a Gemini array."""
    text = body.decode().removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        return [Event("message", json.dumps(item), item) for item in json.loads(text)]
    events: list[Event] = []
    kind, lines = "", []
    for line in [*re.split(r"\r\n|\n|\r", text), ""]:
        if not line:
            if lines:
                raw = "\n".join(lines)
                events.append(Event(kind or "message", raw, _json_or_none(raw)))
            kind, lines = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            lines.append(value)
        elif name == "event":
            kind = value
    return events


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _objects(events: Iterable[Event]) -> list[Json]:
    return [event.data for event in events if isinstance(event.data, dict)]


def _call(name: object, arguments: str, call_id: object) -> Json:
    """Arguments that do not parse stay as they are, so that no JSON value equals them."""
    parsed = _json_or_none(arguments)
    is_json = parsed is not None or arguments.strip() == "null"
    return {"name": name, "arguments": parsed if is_json else {"unparsed": arguments}, "id": call_id}


# Chat.


def _chat_calls(parts: Iterable[Json]) -> list[Json]:
    calls: dict[int, Json] = {}
    for number, part in enumerate(parts):
        call = calls.setdefault(part.get("index", number), {"name": None, "arguments": "", "id": None})
        function = part.get("function") or part.get("custom") or {}
        call["name"] = call["name"] or function.get("name")
        call["id"] = call["id"] or part.get("id")
        call["arguments"] += function.get("arguments") or function.get("input") or ""
    return [_call(call["name"], call["arguments"], call["id"]) for call in calls.values()]


def _chat_stream(events: list[Event]) -> Reading:
    reading = Reading()
    parts: list[Json] = []
    for chunk in _objects(events):
        choices = chunk.get("choices") or []
        if isinstance(chunk.get("usage"), dict):
            reading.usage = chunk["usage"]
        if not choices:
            continue
        delta = choices[0].get("delta") or {}
        reading.text += delta.get("content") or ""
        reading.thinking += delta.get("reasoning_content") or ""
        parts += delta.get("tool_calls") or []
        reading.say_finish(choices[0].get("finish_reason"))
    reading.calls = _chat_calls(parts)
    if events and events[-1].raw == "[DONE]":
        reading.ends_with = "done"
    elif events and isinstance(events[-1].data, dict) and isinstance(events[-1].data.get("error"), dict):
        reading.ends_with = "error" if all(event.raw != "[DONE]" for event in events) else "eof"
    return reading


def _chat_plain(answer: Json) -> Reading:
    reading = Reading(usage=answer.get("usage"))
    for choice in (answer.get("choices") or [])[:1]:
        message = choice.get("message") or {}
        reading.text = message.get("content") or ""
        reading.thinking = message.get("reasoning_content") or ""
        reading.calls = _chat_calls(
            {**part, "index": n} for n, part in enumerate(message.get("tool_calls") or [])
        )
        reading.say_finish(choice.get("finish_reason"))
    return reading


# Responses.


def _responses_items(reading: Reading, items: Iterable[Json], *, with_text: bool) -> None:
    for item in items:
        if item.get("type") == "function_call":
            reading.calls.append(_call(item.get("name"), item.get("arguments") or "", item.get("call_id")))
        elif item.get("type") == "message" and with_text:
            parts = item.get("content") or []
            reading.text += "".join(
                part.get("text", "") for part in parts if part.get("type") == "output_text"
            )
        elif item.get("type") == "reasoning" and with_text:
            parts = [*(item.get("summary") or []), *(item.get("content") or [])]
            reading.thinking += "".join(part.get("text", "") for part in parts)


def _responses_finish(answer: Json) -> str | None:
    status = answer.get("status")
    if status == "incomplete":
        return f"incomplete:{(answer.get('incomplete_details') or {}).get('reason')}"
    return status if status in ("completed", "failed") else None


def _responses_stream(events: list[Event]) -> Reading:
    reading = Reading()
    done_items = []
    for data in _objects(events):
        match data.get("type"):
            case "response.output_text.delta":
                reading.text += data.get("delta", "")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                reading.thinking += data.get("delta", "")
            case "response.output_item.done":
                done_items.append(data.get("item") or {})
            case "response.completed" | "response.incomplete" | "response.failed":
                reading.say_finish(_responses_finish(data.get("response") or {}))
                reading.usage = (data.get("response") or {}).get("usage")
    _responses_items(reading, done_items, with_text=False)
    last = _objects(events)[-1].get("type") if _objects(events) else None
    if last in ("response.completed", "response.incomplete"):
        reading.ends_with = "done"
    elif last in ("response.failed", "error"):
        reading.ends_with = "error"
    return reading


def _responses_plain(answer: Json) -> Reading:
    reading = Reading(usage=answer.get("usage"))
    _responses_items(reading, answer.get("output") or [], with_text=True)
    reading.say_finish(_responses_finish(answer))
    return reading


# Anthropic.


def _anthropic_stream(events: list[Event]) -> Reading:
    reading = Reading()
    blocks: dict[int, Json] = {}
    for data in _objects(events):
        match data.get("type"):
            case "message_start":
                reading.usage = dict((data.get("message") or {}).get("usage") or {})
            case "content_block_start":
                blocks[data.get("index", 0)] = {**(data.get("content_block") or {}), "json": ""}
            case "content_block_delta":
                delta = data.get("delta") or {}
                reading.text += delta.get("text", "") if delta.get("type") == "text_delta" else ""
                reading.thinking += delta.get("thinking", "") if delta.get("type") == "thinking_delta" else ""
                if delta.get("type") == "input_json_delta":
                    blocks[data.get("index", 0)]["json"] += delta.get("partial_json", "")
            case "message_delta":
                reading.say_finish((data.get("delta") or {}).get("stop_reason"))
                reading.usage = {**(reading.usage or {}), **(data.get("usage") or {})}
    for block in blocks.values():
        if block.get("type") == "tool_use":
            reading.calls.append(_call(block.get("name"), block["json"] or "{}", block.get("id")))
    last = _objects(events)[-1].get("type") if _objects(events) else None
    reading.ends_with = {"message_stop": "done", "error": "error"}.get(str(last), "eof")
    return reading


def _anthropic_plain(answer: Json) -> Reading:
    reading = Reading(usage=answer.get("usage"))
    for block in answer.get("content") or []:
        if block.get("type") == "text":
            reading.text += block.get("text", "")
        elif block.get("type") == "thinking":
            reading.thinking += block.get("thinking", "")
        elif block.get("type") == "tool_use":
            reading.calls.append(
                {"name": block.get("name"), "arguments": block.get("input"), "id": block.get("id")}
            )
    reading.say_finish(answer.get("stop_reason"))
    return reading


# Gemini.


def _gemini_chunk(reading: Reading, chunk: Json) -> None:
    if isinstance(chunk.get("usageMetadata"), dict):
        reading.usage = chunk["usageMetadata"]
    for candidate in (chunk.get("candidates") or [])[:1]:
        for part in (candidate.get("content") or {}).get("parts") or []:
            if "functionCall" in part:
                call = part["functionCall"]
                reading.calls.append(
                    {"name": call.get("name"), "arguments": call.get("args"), "id": call.get("id")}
                )
            elif part.get("thought"):
                reading.thinking += part.get("text", "")
            else:
                reading.text += part.get("text", "")
        reading.say_finish(candidate.get("finishReason"))


def _gemini_stream(events: list[Event]) -> Reading:
    reading = Reading()
    chunks = _objects(events)
    for chunk in chunks:
        _gemini_chunk(reading, chunk)
    if chunks and "error" in chunks[-1]:
        reading.ends_with = "error"
    elif reading.finish is not None:
        reading.ends_with = "done"
    return reading


def _gemini_plain(answer: Json) -> Reading:
    reading = Reading()
    _gemini_chunk(reading, answer)
    return reading


_STREAMS: dict[str, Callable[[list[Event]], Reading]] = {
    "openai-chat": _chat_stream,
    "openai-responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "gemini": _gemini_stream,
}
_PLAIN: dict[str, Callable[[Json], Reading]] = {
    "openai-chat": _chat_plain,
    "openai-responses": _responses_plain,
    "anthropic": _anthropic_plain,
    "gemini": _gemini_plain,
}


def read_stream(client: str, events: list[Event]) -> Reading:
    """What a client of this dialect reads of a stream."""
    return _STREAMS[client](events)


def read_plain(client: str, answer: Json) -> Reading:
    """What a client of this dialect reads of a plain answer."""
    return _PLAIN[client](answer)
