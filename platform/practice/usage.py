"""Pure. How providers spell what was used.

openai    details objects; in a stream a last chunk with empty choices, only when the request asked for it
none      no usage anywhere
kimi      `cached_tokens` beside the totals; in a stream inside `choices[0]` of the finish chunk, always
deepseek  `prompt_cache_hit_tokens` and `prompt_cache_miss_tokens`, no detail; on the finish chunk, always
qwen      writes as `cache_creation_input_tokens` with a `cache_type`, as under explicit caching
vllm      totals and cached tokens only, on every chunk, as under `continuous_usage_stats`
xai       `completion_tokens` without the reasoning, which the total includes

A model whose cache counts writes adds `cache_write_tokens` to the details of openai and xai.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Usage = dict[str, object]
Place = Literal["chunk", "finish", "choice", "every", "nowhere"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one call. `output` includes `reasoning`; `written` is what the cache took in."""

    prompt: int
    cached: int
    written: int
    output: int
    reasoning: int
    counts_writes: bool = False


def spell_usage(counts: Counts, kind: str) -> Usage | None:
    """Pure. The usage object in that spelling; None for `none`."""
    return _SPELLINGS[kind](counts)


def place_usage(kind: str) -> Place:
    """Pure. Where a stream carries it: chunk of its own, finish chunk, its choice, every chunk, nowhere."""
    return _PLACES.get(kind, "chunk")


def _totals(counts: Counts) -> Usage:
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.prompt + counts.output,
    }


def _spell_openai(counts: Counts) -> Usage:
    details: Usage = {"cached_tokens": counts.cached, "audio_tokens": 0}
    if counts.counts_writes:
        details["cache_write_tokens"] = counts.written
    return {
        **_totals(counts),
        "prompt_tokens_details": details,
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _spell_none(counts: Counts) -> None:
    return None


def _spell_kimi(counts: Counts) -> Usage:
    return {**_totals(counts), "cached_tokens": counts.cached}


def _spell_deepseek(counts: Counts) -> Usage:
    return {
        **_totals(counts),
        "prompt_cache_hit_tokens": counts.cached,
        "prompt_cache_miss_tokens": counts.prompt - counts.cached,
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def _spell_qwen(counts: Counts) -> Usage:
    return {
        **_totals(counts),
        "prompt_tokens_details": {
            "cached_tokens": counts.cached,
            "cache_creation_input_tokens": counts.written,
            "cache_type": "ephemeral",
        },
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def _spell_vllm(counts: Counts) -> Usage:
    return {**_totals(counts), "prompt_tokens_details": {"cached_tokens": counts.cached}}


def _spell_xai(counts: Counts) -> Usage:
    usage = _spell_openai(counts)
    usage["completion_tokens"] = counts.output - counts.reasoning
    return usage


_SPELLINGS: dict[str, Callable[[Counts], Usage | None]] = {
    "openai": _spell_openai,
    "none": _spell_none,
    "kimi": _spell_kimi,
    "deepseek": _spell_deepseek,
    "qwen": _spell_qwen,
    "vllm": _spell_vllm,
    "xai": _spell_xai,
}

_PLACES: dict[str, Place] = {"none": "nowhere", "kimi": "choice", "deepseek": "finish", "vllm": "every"}
