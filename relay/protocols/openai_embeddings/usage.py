"""Pure. Usage of the embeddings form: everything is uncached input (protocols.md 6.2)."""

from collections.abc import Mapping

from relay.protocols.openai_answer import is_count, token_count
from relay.protocols.usage import Usage

__all__ = ["is_usable", "read_usage", "reported_usage", "usage_of_answer"]

Json = Mapping[str, object]


def _input_tokens(raw: Json) -> int:
    """Some upstreams (Jina, older vLLM) report the total only."""
    return token_count(raw, "prompt_tokens") or token_count(raw, "total_tokens")


def is_usable(raw: Json) -> bool:
    """Whether a usage object says how much was used. One that does not is as good as none.

    >>> is_usable({"prompt_tokens": 8, "total_tokens": 8}), is_usable({"prompt_tokens": 0}), is_usable({})
    (True, False, False)
    """
    given = [raw[name] for name in ("prompt_tokens", "total_tokens") if raw.get(name) is not None]
    return bool(given) and all(is_count(count) for count in given) and _input_tokens(raw) > 0


def read_usage(raw: Json) -> Usage:
    """The internal record of one usage object. Never raises; unreadable fields count as not said.

    >>> read_usage({"prompt_tokens": 8, "total_tokens": 8}).uncached_input
    8
    """
    return Usage(uncached_input=_input_tokens(raw))


def usage_of_answer(answer: Json) -> Json | None:
    """The usage object of an answer, or None if it has none."""
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) and usage else None


def reported_usage(answer: Json) -> Usage | None:
    """What a plain answer says that it used, or None if it does not say."""
    raw = usage_of_answer(answer)
    return read_usage(raw) if raw is not None and is_usable(raw) else None
