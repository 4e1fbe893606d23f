"""Pure. The prompt cache: exact prefixes in fixed steps, per account and model, bounded, with a lifetime.

A prompt is a byte string; a step is `step_tokens` tokens of four bytes. Each whole step has an entry named by
the hash of everything up to its end, seeded with account and model, so equal names mean equal prefixes and no
account sees another's. Reading and writing are two moves: `look_up` when the prompt arrives (a read refreshes
what it used), `store` when its first token comes. Two cold prompts at once both pay, as they do at a
provider.

Over `max_entries` the least recently used entries go. A prompt's last steps are older than its first ones
within one use, so a long prefix loses its tail before its head.
"""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

from practice.models import CacheRules
from practice.tokens import BYTES_PER_TOKEN, count_tokens

MAX_ENTRIES = 131_072  # 16.8 million tokens in steps of 128; about 20 MiB


@dataclass(frozen=True, slots=True)
class Lookup:
    """What the cache knew of one prompt, and what `store` needs to add the rest."""

    prompt_tokens: int
    cached_tokens: int
    write_tokens: int
    names: tuple[bytes, ...]
    lifetime_s: float


class PromptCache:
    """Entries with the time of their end; `now` comes from the caller, in seconds of any steady clock."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._ends: OrderedDict[bytes, float] = OrderedDict()
        self._max_entries = max_entries

    def __len__(self) -> int:
        return len(self._ends)

    def look_up(self, account: str, model: str, prompt: bytes, rules: CacheRules, now: float) -> Lookup:
        """The longest live prefix of the prompt, in tokens, and how many tokens a `store` would write.

        A prompt under the minimum, or a shared prefix under it, counts as not cached. Refreshes what was
        read.
        """
        tokens = count_tokens(len(prompt))
        names = _name_steps(f"{account}\0{model}", prompt, rules) if tokens >= rules.minimum_tokens else ()
        known = 0
        while known < len(names) and self._ends.get(names[known], now) > now:
            known += 1
        if known * rules.step_tokens < rules.minimum_tokens:
            known = 0
        self._touch(names[:known], now + rules.lifetime_s)
        return Lookup(
            prompt_tokens=tokens,
            cached_tokens=known * rules.step_tokens,
            write_tokens=(len(names) - known) * rules.step_tokens,
            names=names,
            lifetime_s=rules.lifetime_s,
        )

    def store(self, lookup: Lookup, now: float) -> None:
        """Keep every whole step of the prompt for its lifetime from now."""
        self._touch(lookup.names, now + lookup.lifetime_s)

    def clear(self) -> None:
        """Forget everything."""
        self._ends.clear()

    def _touch(self, names: tuple[bytes, ...], ends_at: float) -> None:
        for name in reversed(names):
            self._ends[name] = ends_at
            self._ends.move_to_end(name)
        while len(self._ends) > self._max_entries:
            self._ends.popitem(last=False)


def _name_steps(seed: str, prompt: bytes, rules: CacheRules) -> tuple[bytes, ...]:
    size = rules.step_tokens * BYTES_PER_TOKEN
    running = blake2b(seed.encode(), digest_size=16)
    names = []
    for start in range(0, len(prompt) - size + 1, size):
        running.update(prompt[start : start + size])
        names.append(running.digest())
    return tuple(names)
