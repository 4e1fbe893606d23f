"""Pure. Usage of the completions form: the counts of chat completions, in fewer spellings.

Upstreams of this form are OpenAI, vLLM, llama.cpp, Qwen (`prompt_tokens_details.cached_tokens`) and DeepSeek
(`prompt_cache_hit_tokens`). An absent field is not zero where another one says more: the largest counts.
"""

from collections.abc import Mapping

from relay.protocols.openai_answer import is_count, token_count
from relay.protocols.usage import Usage, sound

__all__ = ["is_usable", "read_usage", "reported_usage", "usage_of_answer"]

Json = Mapping[str, object]


def is_usable(raw: Json) -> bool:
    """Whether a usage object says how much was used. One that does not is as good as none.

    >>> is_usable({"prompt_tokens": 5, "completion_tokens": 0}), is_usable({"prompt_tokens": None})
    (True, False)
    """
    counts = raw.get("prompt_tokens"), raw.get("completion_tokens")
    return all(is_count(count) for count in counts) and counts != (0, 0)


def read_usage(raw: Json) -> Usage:
    """The internal record of one usage object. Never raises; unreadable fields count as not said.

    >>> read_usage({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}).output
    4
    """
    prompt, output = token_count(raw, "prompt_tokens"), token_count(raw, "completion_tokens")
    total = token_count(raw, "total_tokens")
    given = raw.get("prompt_tokens_details")
    details: Json = given if isinstance(given, dict) else {}
    cached = max(token_count(details, "cached_tokens"), token_count(raw, "prompt_cache_hit_tokens"))
    write_30m = token_count(details, "cache_write_tokens")
    flags: tuple[str, ...] = ()
    input_tokens = prompt
    if cached + write_30m > prompt:
        input_tokens = prompt + cached + write_30m
        flags += ("input_excludes_cache",)
    if total and total != input_tokens + output:
        flags += ("total_mismatch",)
    return sound(
        Usage(
            uncached_input=input_tokens - cached - write_30m,
            cached_input=cached,
            cache_write_30m=write_30m,
            output=output,
            flags=flags,
        )
    )


def usage_of_answer(answer: Json) -> Json | None:
    """The usage object of a chunk or a plain answer, or None if it has none."""
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) and usage else None


def reported_usage(answer: Json) -> Usage | None:
    """What a plain answer says that it used, or None if it does not say."""
    raw = usage_of_answer(answer)
    return read_usage(raw) if raw is not None and is_usable(raw) else None
