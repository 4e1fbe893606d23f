"""Pure. The models on offer: their pace and the rules of their prompt cache, as data.

Cache rules follow what OpenAI publishes: prompts from 1,024 tokens, exact prefixes in steps of 128 tokens, a
few minutes of idle life refreshed by each read and free writes for the older generation; 30 minutes and
counted writes from gpt-5.6 on (OpenAI, "Prompt caching", read October 2026).
"""

from dataclasses import dataclass

CREATED = 1_767_225_600  # 2026-01-01, the `created` of every model in the list
OWNER = "practice"
NEVER = 10**12  # tokens: a minimum that no prompt reaches


@dataclass(frozen=True, slots=True)
class CacheRules:
    """When a prefix is cached, in which steps, how long after its last use, and whether writes count."""

    minimum_tokens: int = 1024
    step_tokens: int = 128
    lifetime_s: float = 300.0
    counts_writes: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """One model: prefill takes a base time plus a rate per uncached token, then comes a chunk per gap."""

    name: str
    prefill_base_ms: float
    prefill_ms_per_token: float
    gap_ms: float
    reasons: bool = False
    context_tokens: int = 262_144
    cache: CacheRules = CacheRules()
    dimensions: int = 0

    @property
    def embeds(self) -> bool:
        """Whether it makes vectors instead of texts."""
        return self.dimensions > 0

    def prefill_s(self, uncached_tokens: int) -> float:
        """Pure. Seconds until the first token of a prompt with that many tokens not read from the cache."""
        return (self.prefill_base_ms + self.prefill_ms_per_token * uncached_tokens) / 1000


MODELS = {
    model.name: model
    for model in (
        Model("practice-chat", prefill_base_ms=80, prefill_ms_per_token=0.02, gap_ms=20),
        Model("practice-fast", prefill_base_ms=0, prefill_ms_per_token=0, gap_ms=0),
        Model("practice-reasoner", prefill_base_ms=120, prefill_ms_per_token=0.03, gap_ms=10, reasons=True),
        Model(
            "practice-pro",
            prefill_base_ms=100,
            prefill_ms_per_token=0.03,
            gap_ms=15,
            cache=CacheRules(lifetime_s=1800.0, counts_writes=True),
        ),
        Model(
            "practice-embedding",
            prefill_base_ms=5,
            prefill_ms_per_token=0.001,
            gap_ms=0,
            context_tokens=8192,
            cache=CacheRules(minimum_tokens=NEVER),
            dimensions=1536,
        ),
    )
}
