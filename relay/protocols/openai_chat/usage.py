"""Pure. Usage of the OpenAI chat form and of the providers that spell it differently.

| upstream | where the cached part stands |
|---|---|
| OpenAI, GLM, Qwen, vLLM | `prompt_tokens_details.cached_tokens` |
| Kimi | `usage.cached_tokens`; older streams carry the whole usage in `choices[0].usage` |
| DeepSeek | `prompt_cache_hit_tokens` |
| Qwen, explicit cache | writes in `prompt_tokens_details.cache_creation_input_tokens`, with `cache_type` |
| OpenAI from gpt-5.6 | writes in `prompt_tokens_details.cache_write_tokens` |
| xAI | reasoning is not part of `completion_tokens`; the cached part may exceed `prompt_tokens` |

An absent field is not zero where another one says more: the largest of the cached spellings counts.
"""

from collections.abc import Mapping

from relay.protocols.openai_answer import MOST_TOKENS
from relay.protocols.usage import Usage, sound

__all__ = ["is_usable", "read_usage", "reported_usage", "usage_of_answer"]

Json = Mapping[str, object]


_OTHER_SPELLINGS = frozenset({"cached_tokens", "prompt_cache_hit_tokens"})
_OTHER_DETAILS = frozenset({"cache_write_tokens", "cache_creation_input_tokens", "cache_type"})


def _count(source: Json, name: str) -> int:
    value = source.get(name)
    if type(value) is int:
        return value if abs(value) <= MOST_TOKENS else 0
    if isinstance(value, float) and abs(value) <= MOST_TOKENS:
        return int(value)
    return 0


def is_usable(raw: Json) -> bool:
    """Whether a usage object says how much was used: both counts are numbers within reason, and not both nothing.

    One that does not is as good as none; an upstream that sends nulls or nonsense has not given its tokens away.
    """
    prompt, completion = raw.get("prompt_tokens"), raw.get("completion_tokens")
    if type(prompt) is int and type(completion) is int:
        return 0 <= prompt <= MOST_TOKENS and 0 <= completion <= MOST_TOKENS and prompt + completion > 0
    counts = prompt, completion
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count <= MOST_TOKENS:
            return False
    return counts != (0, 0)


def read_usage(raw: Json) -> Usage:
    """The internal record of one usage object. Never raises; unreadable fields count as not said."""
    return _read_openai(raw) or _read_any(raw)


def _read_openai(raw: Json) -> Usage | None:
    """What `_read_any` gives, in a third of the time, for the spelling that nearly all upstreams share."""
    prompt, completion, total = (
        raw.get("prompt_tokens"),
        raw.get("completion_tokens"),
        raw.get("total_tokens"),
    )
    if type(prompt) is not int or type(completion) is not int or not _OTHER_SPELLINGS.isdisjoint(raw):
        return None
    if not (0 <= prompt <= MOST_TOKENS and 0 <= completion <= MOST_TOKENS):
        return None
    if total is not None and total != prompt + completion:
        return None
    cached = reasoning = 0
    details = raw.get("prompt_tokens_details")
    if details:
        if type(details) is not dict or not _OTHER_DETAILS.isdisjoint(details):
            return None
        cached = details.get("cached_tokens", 0)
        if type(cached) is not int or not 0 <= cached <= prompt:
            return None
    details = raw.get("completion_tokens_details")
    if details:
        if type(details) is not dict:
            return None
        reasoning = details.get("reasoning_tokens", 0)
        if type(reasoning) is not int or not 0 <= reasoning <= completion:
            return None
    return Usage(prompt - cached, cached, output=completion, reasoning=reasoning)


def _read_any(raw: Json) -> Usage:
    prompt, completion = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    total = _count(raw, "total_tokens")
    cached = write_30m = write_5m = reasoning = 0
    cache_type: object = ""
    # Most objects lack most of the spellings: a field is only read where it stands.
    if "cached_tokens" in raw:
        cached = _count(raw, "cached_tokens")
    if "prompt_cache_hit_tokens" in raw:
        cached = max(cached, _count(raw, "prompt_cache_hit_tokens"))
    details = raw.get("prompt_tokens_details")
    if isinstance(details, dict):
        if "cached_tokens" in details:
            cached = max(cached, _count(details, "cached_tokens"))
        if "cache_write_tokens" in details:
            write_30m = _count(details, "cache_write_tokens")
        if "cache_creation_input_tokens" in details:
            write_5m = _count(details, "cache_creation_input_tokens")
        cache_type = details.get("cache_type", "")
    details = raw.get("completion_tokens_details")
    if isinstance(details, dict):
        reasoning = _count(details, "reasoning_tokens")
    flags: tuple[str, ...] = ()
    input_tokens, output = prompt, completion
    if cached + write_5m + write_30m > prompt:
        input_tokens = prompt + cached + write_5m + write_30m
        flags += ("input_excludes_cache",)
    if reasoning > 0 and (reasoning > completion or (total and total == prompt + completion + reasoning)):
        output = completion + reasoning
        flags += ("output_excluded_reasoning",)
    if total and total != input_tokens + output:
        flags += ("total_mismatch",)
    return sound(
        Usage(
            uncached_input=input_tokens - cached - write_5m - write_30m,
            cached_input=cached,
            cache_write_5m=write_5m,
            cache_write_30m=write_30m,
            output=output,
            reasoning=reasoning,
            cache_type=cache_type if isinstance(cache_type, str) else "",
            flags=flags,
        )
    )


def usage_of_answer(answer: Json) -> Json | None:
    """The usage object of a chunk or a plain answer: at the top, or (Kimi) in its first choice. None if it has none."""
    usage = answer.get("usage")
    if isinstance(usage, dict) and usage:
        return usage
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        inner = choices[0].get("usage")
        if isinstance(inner, dict) and inner:
            return inner
    return None


def reported_usage(answer: Json) -> Usage | None:
    """What a plain answer says that it used, or None if it does not say."""
    raw = usage_of_answer(answer)
    return read_usage(raw) if raw is not None and is_usable(raw) else None
