"""Pure. What a case expects, checked against what was seen: each function returns sentences, none where all is well.

Section 4 of the README of the cases, and the checks of section 5 that are made on every case.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.cases.harness.matching import MISSING, mismatches, point, unmatched
from tests.cases.harness.reading import Event, Reading
from tests.cases.harness.scripted import Arrival

__all__ = [
    "check_envelope",
    "check_events",
    "check_reading",
    "check_translated",
    "check_upstream_requests",
    "shows_usage",
]

Json = dict[str, Any]


def _holds(entry: Mapping[str, Any], event: Event) -> bool:
    if "raw" in entry:
        return unmatched(entry["raw"], event.raw) is None
    if "event" in entry and unmatched(entry["event"], event.event) is not None:
        return False
    return event.data is not None and not mismatches(entry["data"], event.data)


def check_events(expect: Mapping[str, Any], events: list[Event]) -> Iterator[str]:
    """`events`, `no_events` and `count_events`."""
    place = 0
    for entry in expect.get("events", []):
        found = next((n for n in range(place, len(events)) if _holds(entry, events[n])), None)
        if found is None:
            yield f"no event from {place} on is {entry}"
            return
        place = found + 1
    for entry in expect.get("no_events", []):
        if any(_holds(entry, event) for event in events):
            yield f"an event is {entry}"
    for entry, count in expect.get("count_events", []):
        found = sum(_holds(entry, event) for event in events)
        if found != count:
            yield f"{found} events instead of {count} are {entry}"


def check_reading(
    expect: Mapping[str, Any], client: str, reading: Reading, *, is_stream: bool
) -> Iterator[str]:
    """`text`, `thinking`, `tool_calls`, `finish`, `usage` and `ends_with`."""
    for name, value in (("text", reading.text), ("thinking", reading.thinking), ("finish", reading.finish)):
        if name in expect and (reason := unmatched(expect[name], MISSING if value is None else value)):
            yield f"{name}: {reason}"
    if "finish" in expect and is_stream and client == "openai-chat" and reading.finishes != 1:
        yield f"the finish reason was said {reading.finishes} times"
    if "ends_with" in expect and expect["ends_with"] != reading.ends_with:
        yield f"ends with {reading.ends_with} instead of {expect['ends_with']}"
    if "tool_calls" in expect:
        yield from _check_calls(expect["tool_calls"], reading.calls)
    if isinstance(expect.get("usage"), dict):
        yield from (f"usage {reason}" for reason in mismatches(expect["usage"], reading.usage or {}))


def _check_calls(expected: list[Json], calls: list[Json]) -> Iterator[str]:
    if len(expected) != len(calls):
        yield f"{len(calls)} tool calls instead of {len(expected)}: {calls}"
        return
    for wanted, call in zip(expected, calls, strict=True):
        for name in ("name", "arguments", "id"):
            reason = unmatched(wanted[name], call[name]) if name in wanted else None
            if reason:
                yield f"tool call {name}: {reason}"


def shows_usage(documents: Iterable[Any]) -> bool:
    """Whether any of these holds a usage object with numbers, at any depth."""
    for document in documents:
        if isinstance(document, dict):
            for name, value in document.items():
                is_usage = name in ("usage", "usageMetadata") and isinstance(value, dict)
                if is_usage and any(isinstance(number, int | float) for number in value.values()):
                    return True
            if shows_usage(document.values()):
                return True
        elif isinstance(document, list) and shows_usage(document):
            return True
    return False


def check_upstream_requests(expected: list[Json], arrivals: list[Arrival]) -> Iterator[str]:
    """`upstream_requests`: complete, and in the order of arrival."""
    if [entry["upstream"] for entry in expected] != [arrival.upstream for arrival in arrivals]:
        yield f"requests reached the upstreams {[arrival.upstream for arrival in arrivals]}"
        return
    for entry, arrival in zip(expected, arrivals, strict=True):
        for reason in _check_request(entry, arrival):
            yield f"upstream {arrival.upstream}: {reason}"


def _check_request(entry: Json, arrival: Arrival) -> Iterator[str]:
    request = arrival.request
    method, target, _ = request.line.split(" ")
    parts = urlsplit(target)
    text = request.body.decode("utf-8", "replace")
    if "method" in entry and entry["method"] != method:
        yield f"method {method}"
    if "path" in entry and (reason := unmatched(entry["path"], parts.path)):
        yield f"path: {reason}"
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    yield from (
        f"query {reason}"
        for reason in mismatches({f"/{n}": m for n, m in entry.get("query", {}).items()}, query)
    )
    for name, matcher in entry.get("headers", {}).items():
        if name == "absent":
            yield from (f"header {absent} is there" for absent in matcher if absent in request.headers)
        elif reason := unmatched(matcher, request.headers.get(name, MISSING)):
            yield f"header {name}: {reason}"
    if "body" in entry:
        yield from (f"body {reason}" for reason in mismatches(entry["body"], json.loads(text)))
    if "raw" in entry and (reason := unmatched(entry["raw"], text)):
        yield f"raw: {reason}"


_ENVELOPES: dict[str, dict[str, Any]] = {
    "openai": {f"/error/{name}": {"$exists": True} for name in ("message", "type", "param", "code")},
    "anthropic": {
        "/type": "error",
        "/error/type": {"$type": "string"},
        "/error/message": {"$type": "string"},
    },
    "gemini": {
        "/error/code": {"$type": "integer"},
        "/error/message": {"$type": "string"},
        "/error/status": {"$type": "string"},
    },
}


def check_envelope(client: str, answer: Any) -> Iterator[str]:
    """An error body is in the client's own envelope (protocols.md 8.3)."""
    form = _ENVELOPES["openai" if client.startswith("openai") else client]
    yield from (f"error envelope {reason}" for reason in mismatches(form, answer))


# What is checked on every translated stream that ends with `done`.


def check_translated(client: str, events: list[Event]) -> Iterator[str]:
    """The shape that the dialect's strict clients rely on."""
    data = [event.data for event in events if isinstance(event.data, dict)]
    if client == "openai-responses":
        yield from _check_responses(data)
    elif client == "anthropic":
        yield from _check_anthropic(data)
    elif client == "openai-chat":
        yield from _check_chat(data)


def _check_responses(data: list[Json]) -> Iterator[str]:
    numbers = [event.get("sequence_number") for event in data]
    if numbers != list(range(len(numbers))):
        yield f"sequence numbers {numbers}"
    added, done = [], []
    for event in data:
        kind, item_id = str(event.get("type")), (event.get("item") or {}).get("id", event.get("item_id"))
        if kind == "response.output_item.added":
            added.append(item_id)
        elif kind == "response.output_item.done":
            done.append(item_id)
        elif kind.endswith(".delta") and item_id not in added:
            yield f"a delta of {item_id} comes before its item"
    if sorted(map(str, added)) != sorted(map(str, done)):
        yield f"items added {added}, done {done}"
    response = data[-1].get("response") or {}
    if not response.get("id") or len(response.get("output") or []) != len(done):
        yield "the terminal event lacks the response's id or items"


def _check_anthropic(data: list[Json]) -> Iterator[str]:
    kinds = [event.get("type") for event in data if event.get("type") != "ping"]
    if kinds[:1] != ["message_start"]:
        yield f"the first event is {kinds[:1]}"
    open_block, blocks = None, 0
    for event in data:
        index = event.get("index")
        if event.get("type") == "content_block_start":
            if open_block is not None or index != blocks:
                yield f"block {index} starts while {open_block} is open"
            open_block, blocks = index, blocks + 1
        elif event.get("type") in ("content_block_delta", "content_block_stop") and index != open_block:
            yield f"{event.get('type')} of block {index} while {open_block} is open"
        if event.get("type") == "content_block_stop":
            open_block = None
    deltas = [e for e in data if e.get("type") == "message_delta" and point(e, "/delta/stop_reason")]
    if len(deltas) != 1:
        yield f"{len(deltas)} message deltas with a stop reason"


def _check_chat(data: list[Json]) -> Iterator[str]:
    if len({chunk.get("id") for chunk in data}) != 1:
        yield f"ids {[chunk.get('id') for chunk in data]}"
    opened: dict[int, int] = {}
    for chunk in data:
        for choice in chunk.get("choices") or []:
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                if call.get("id"):
                    opened[call["index"]] = opened.get(call["index"], 0) + 1
                    if not call.get("type") or not (call.get("function") or call.get("custom") or {}).get(
                        "name"
                    ):
                        yield f"call {call['index']} opens without type or name"
                elif call["index"] not in opened:
                    yield f"call {call['index']} grows before it opens"
    yield from (f"call {index} opens {times} times" for index, times in opened.items() if times != 1)
