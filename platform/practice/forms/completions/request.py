"""Pure. Reads a completions request.

Source: OpenAI completion request types (openai-python 3.3.1, August 2026). Without `max_tokens` an answer has 16
tokens, as there. Fields that change nothing here (temperature, logit_bias and so on) are accepted unread.
"""

from typing import NoReturn

from practice.forms.inputs import join_parts, last_text, read_inputs, to_bytes
from practice.prompt import Prompt
from practice.refusal import Refusal

DEFAULT_TOKENS = 16
MAX_CHOICES = 20
MAX_LOGPROBS = 5

_Object = dict[str, object]


def read_prompt(body: _Object) -> Prompt:
    """Pure. The request in neutral words. Raises Refusal (400) naming the field that is missing or wrong."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        _refuse("you must provide a model parameter", "model", "missing_required_parameter")
    inputs = read_inputs(body, "prompt")
    stream = body.get("stream") is True
    options = body.get("stream_options")
    if options is not None and not (isinstance(options, dict) and stream):
        _refuse("stream_options is an object, allowed only with stream", "stream_options")
    wanted = options if isinstance(options, dict) else {}
    shown = _read_count(body, "n", 1, MAX_CHOICES) or 1
    written = _read_count(body, "best_of", 0, MAX_CHOICES) or shown
    if written < shown:
        _refuse("best_of must be at least n", "best_of")
    if stream and written > shown:
        _refuse("best_of cannot be used with stream", "best_of")
    limit = _read_count(body, "max_tokens", 0, 1_000_000_000)
    logprobs = _read_count(body, "logprobs", 0, MAX_LOGPROBS)
    suffix = body.get("suffix")
    ending = b"<|suffix|>" + suffix.encode() if isinstance(suffix, str) else b""
    parts = tuple(to_bytes(value) + ending for value in inputs)
    return Prompt(
        model=model,
        rendered=join_parts(parts),
        user_text=last_text(inputs),
        stream=stream,
        max_tokens=DEFAULT_TOKENS if limit is None else limit,
        choices=written * len(inputs),
        stop=_read_stop(body),
        effort="none",
        wants_usage=wanted.get("include_usage") is True,
        wants_usage_always=wanted.get("continuous_usage_stats") is True,
        parts=parts,
        shown=shown,
        echoes=tuple(_say_again(value) for value in inputs) if body.get("echo") is True else (),
        logprobs=logprobs is not None,
    )


def _say_again(value: str | bytes) -> str:
    """Tokens have no text here: their numbers are said."""
    return value if isinstance(value, str) else f"<{len(value) // 4} tokens>"


def _read_count(body: _Object, field: str, least: int, most: int) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(f"{field} must be a whole number from {least} to {most}", field)
    return value


def _read_stop(body: _Object) -> tuple[str, ...]:
    value = body.get("stop")
    stops = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if len(stops) > 4 or not all(isinstance(stop, str) for stop in stops):
        _refuse("stop must be a string or up to four strings", "stop")
    return tuple(stop for stop in stops if stop)


def _refuse(message: str, param: str, code: str = "invalid_value") -> NoReturn:
    raise Refusal(400, message, code=code, param=param)
