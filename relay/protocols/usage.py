"""Pure. One internal record of what a call used, in disjoint token classes, whatever dialect reported it.

Invariants: nothing is negative; input = uncached + cached + the three cache writes; reasoning is part of output.
What an upstream reports against them is corrected and flagged, never dropped and never priced below zero.
"""

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Usage", "sound"]


class Usage(Struct, frozen=True):
    """Tokens by class. `source` says where the figures come from: reported, partial or estimated."""

    uncached_input: int = 0
    cached_input: int = 0
    cache_write_5m: int = 0
    cache_write_30m: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0
    cache_type: str = ""
    source: str = "reported"
    flags: tuple[str, ...] = ()

    @property
    def explicit_cache(self) -> bool:
        """Whether the upstream bills the cached tokens as explicitly cached ones."""
        return bool(self.cache_type)

    @property
    def input(self) -> int:
        """All input tokens."""
        return (
            self.uncached_input
            + self.cached_input
            + self.cache_write_5m
            + self.cache_write_30m
            + self.cache_write_1h
        )


def sound(usage: Usage) -> Usage:
    """The same usage with every class at least 0 and reasoning within output; what had to be changed is flagged."""
    fields = (
        "uncached_input",
        "cached_input",
        "cache_write_5m",
        "cache_write_30m",
        "cache_write_1h",
        "output",
        "reasoning",
    )
    if (
        0 <= usage.reasoning <= usage.output
        and usage.uncached_input >= 0
        and usage.cached_input >= 0
        and usage.cache_write_5m >= 0
        and usage.cache_write_30m >= 0
        and usage.cache_write_1h >= 0
    ):
        return usage
    flags = usage.flags
    changes: dict[str, int] = {}
    for name in fields:
        if getattr(usage, name) < 0:
            changes[name] = 0
            flags += (f"negative_{name}",)
    output = changes.get("output", usage.output)
    if changes.get("reasoning", usage.reasoning) > output:
        changes["reasoning"] = output
        flags += ("reasoning_beyond_output",)
    return replace(usage, **changes, flags=flags) if changes else usage
