"""Pure. Reads a chat completions request, as strictly as the provider does where clients depend on it.

Source: OpenAI chat completion request types (openai-python 3.3.1, August 2026). Fields that change nothing
here (temperature, logprobs, metadata and so on) are accepted unread. The rendered prompt keeps the key order
of tool schemas and the text of arguments as they came: another order is another prefix, as at the provider.
"""

from collections.abc import Iterator
from typing import NoReturn

import orjson

from practice.prompt import Prompt, Tool, ToolChoice, ToolKind, ToolResult, render_media
from practice.refusal import Refusal

MAX_CHOICES = 8
MAX_TOOLS = 512
_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_MEDIA_PARTS = ("image_url", "input_audio", "file", "video_url")
_TOOL_KINDS: dict[str, ToolKind] = {"function": "function", "custom": "custom"}
_CHOICES = {"none": ToolChoice("none"), "auto": ToolChoice("auto"), "required": ToolChoice("required")}

_Object = dict[str, object]


def read_prompt(body: _Object) -> Prompt:
    """Pure. The request in neutral words. Raises Refusal (400) naming the field that is missing or wrong."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        _refuse("you must provide a model parameter", "model", "missing_required_parameter")
    messages = _read_messages(body)
    for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.get(old) is not None:
            _refuse(f"{old} is not offered, use {new}", old, "unsupported_parameter")
    tools = _read_tools(body)
    options = body.get("stream_options")
    if options is not None and not (isinstance(options, dict) and body.get("stream")):
        _refuse("stream_options is an object, allowed only with stream", "stream_options", "invalid_value")
    wanted = options if isinstance(options, dict) else {}
    effort = body.get("reasoning_effort")
    return Prompt(
        model=model,
        rendered=b"".join(_render(tools, messages)),
        user_text=_last_user_text(messages),
        stream=body.get("stream") is True,
        tools=tuple(tool for tool, _ in tools),
        tool_choice=_read_choice(body, [tool.name for tool, _ in tools]),
        parallel_calls=body.get("parallel_tool_calls") is not False,
        results=_read_results(messages),
        max_tokens=_read_count(body, "max_completion_tokens") or _read_count(body, "max_tokens"),
        choices=_read_count(body, "n", MAX_CHOICES) or 1,
        stop=_read_stop(body),
        json_schema=_read_format(body),
        effort=effort if isinstance(effort, str) else None,
        wants_usage=wanted.get("include_usage") is True,
        wants_usage_always=wanted.get("continuous_usage_stats") is True,
    )


def _refuse(message: str, param: str | None, code: str | None = None) -> NoReturn:
    raise Refusal(400, message, code=code, param=param)


def _read_messages(body: _Object) -> list[_Object]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        _refuse(
            "messages must be an array with at least one message", "messages", "missing_required_parameter"
        )
    for place, message in enumerate(messages):
        param = f"messages[{place}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            _refuse(f"{param} needs a role, one of {', '.join(_ROLES)}", f"{param}.role", "invalid_value")
        _check_content(message, param)
    _check_calls(messages)
    return messages


def _check_content(message: _Object, param: str) -> None:
    content = message.get("content")
    if content is None and message["role"] in ("assistant", "function"):
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        _refuse(f"{param}.content must be a string or an array of parts", f"{param}.content", "invalid_type")
    for part in content:
        kind = part.get("type")
        if kind in ("text", "refusal"):
            if not isinstance(part.get(str(kind)), str):
                _refuse(f"{param}.content has a {kind} part without text", f"{param}.content", "invalid_type")
        elif kind not in _MEDIA_PARTS:
            _refuse(f"{param}.content has a part of unknown type", f"{param}.content", "invalid_value")


def _check_calls(messages: list[_Object]) -> None:
    """Tool messages follow the assistant message with their calls, one for each call, in any order."""
    open_ids: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            named = message.get("tool_call_id")
            if not isinstance(named, str) or named not in open_ids:
                _refuse(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
                    f"messages[{place}].tool_call_id",
                )
            open_ids.discard(named)
            continue
        if open_ids:
            break
        open_ids = {str(call["id"]) for call in _calls_of(message, place)}
    if open_ids:
        names = ", ".join(sorted(open_ids))
        _refuse(f"'tool_calls' must be followed by tool messages; missing for: {names}", "messages")


def _calls_of(message: _Object, place: int = 0) -> list[_Object]:
    calls = message.get("tool_calls")
    if message["role"] != "assistant" or calls is None:
        return []
    if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
        param = f"messages[{place}].tool_calls"
        _refuse(f"{param} must be an array of calls with id, type, name and arguments", param, "invalid_type")
    return calls


def _is_call(call: object) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return False
    inner = call.get(str(call.get("type", "function")))
    said = "input" if call.get("type") == "custom" else "arguments"
    return isinstance(inner, dict) and isinstance(inner.get("name"), str) and isinstance(inner.get(said), str)


def _read_tools(body: _Object) -> list[tuple[Tool, _Object]]:
    """Each tool with the object it was sent as."""
    sent = body.get("tools")
    if sent is None:
        return []
    if not isinstance(sent, list) or len(sent) > MAX_TOOLS:
        _refuse(f"tools must be an array of at most {MAX_TOOLS} tools", "tools", "invalid_type")
    tools = []
    for place, item in enumerate(sent):
        kind = str(item.get("type")) if isinstance(item, dict) else ""
        inner = item.get(kind) if kind in _TOOL_KINDS else None
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str) or not inner["name"]:
            _refuse(
                f"tools[{place}] must be a function or custom tool with a name",
                f"tools[{place}]",
                "invalid_value",
            )
        schema = inner.get("parameters")
        tool = Tool(inner["name"], schema if isinstance(schema, dict) else {}, _TOOL_KINDS[kind])
        tools.append((tool, inner))
    return tools


def _read_choice(body: _Object, names: list[str]) -> ToolChoice:
    sent = body.get("tool_choice")
    if sent is None:
        return ToolChoice("auto" if names else "none")
    if isinstance(sent, str) and sent in _CHOICES:
        return _CHOICES[sent]
    if isinstance(sent, dict) and sent.get("type") in ("function", "custom"):
        inner = sent.get(str(sent["type"]))
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            return ToolChoice("required", (inner["name"],))
    if isinstance(sent, dict) and sent.get("type") == "allowed_tools":
        inner = sent.get("allowed_tools")
        if isinstance(inner, dict) and isinstance(inner.get("tools"), list):
            allowed = tuple(_name_allowed(item) for item in inner["tools"])
            return ToolChoice("required" if inner.get("mode") == "required" else "auto", allowed)
    _refuse("tool_choice is not one of the forms it may have", "tool_choice", "invalid_value")


def _name_allowed(item: object) -> str:
    inner = item.get(str(item.get("type"))) if isinstance(item, dict) else None
    return str(inner.get("name")) if isinstance(inner, dict) else ""


def _read_results(messages: list[_Object]) -> tuple[ToolResult, ...]:
    """What tools answered since the last user message."""
    names: dict[str, str] = {}
    results: list[ToolResult] = []
    for message in messages:
        if message["role"] == "user":
            results = []
        for call in _calls_of(message):
            inner = call[str(call.get("type", "function"))]
            names[str(call["id"])] = str(inner["name"]) if isinstance(inner, dict) else ""
        if message["role"] == "tool":
            results.append(ToolResult(names.get(str(message["tool_call_id"]), ""), _join_text(message)))
    return tuple(results)


def _last_user_text(messages: list[_Object]) -> str:
    return next((_join_text(message) for message in reversed(messages) if message["role"] == "user"), "")


def _join_text(message: _Object) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def _read_count(body: _Object, field: str, most: int = 1_000_000_000) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        _refuse(f"{field} must be a whole number from 1 to {most}", field, "invalid_value")
    return value


def _read_stop(body: _Object) -> tuple[str, ...]:
    value = body.get("stop")
    stops = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if len(stops) > 4 or not all(isinstance(stop, str) for stop in stops):
        _refuse("stop must be a string or up to four strings", "stop", "invalid_value")
    return tuple(stop for stop in stops if stop)


def _read_format(body: _Object) -> _Object | None:
    sent = body.get("response_format")
    if sent is None:
        return None
    kind = sent.get("type") if isinstance(sent, dict) else None
    if not isinstance(sent, dict) or kind not in ("text", "json_object", "json_schema"):
        _refuse(
            "response_format.type must be text, json_object or json_schema",
            "response_format",
            "invalid_value",
        )
    if kind == "text":
        return None
    inner = sent.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    return schema if isinstance(schema, dict) else {}


def _render(tools: list[tuple[Tool, _Object]], messages: list[_Object]) -> Iterator[bytes]:
    for _, sent in tools:
        try:
            yield b"<|tool|>" + orjson.dumps(sent)
        except orjson.JSONEncodeError:
            _refuse("a tool is nested too deeply", "tools", "invalid_value")
    for message in messages:
        yield f"<|{message['role']}|>{message.get('name') or ''}\n".encode()
        yield from _render_content(message.get("content"))
        reasoning = message.get("reasoning_content")
        if isinstance(reasoning, str):
            yield b"<|reasoning|>" + reasoning.encode()
        for call in _calls_of(message):
            inner = call[str(call.get("type", "function"))]
            if isinstance(inner, dict):
                said = inner.get("arguments", inner.get("input"))
                yield f"<|call|>{inner['name']}\n{said}".encode()


def _render_content(content: object) -> Iterator[bytes]:
    if isinstance(content, str):
        yield content.encode()
    elif isinstance(content, list):
        for part in content:
            kind = str(part["type"])
            if kind in ("text", "refusal"):
                yield str(part[kind]).encode()
            else:
                yield render_media(orjson.dumps(part.get(kind), default=str).decode())
