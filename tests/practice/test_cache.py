"""The rules of the prompt cache, at their boundaries."""

import pytest

from practice.cache import PromptCache
from practice.models import CacheRules

RULES = CacheRules(minimum_tokens=1024, step_tokens=128, lifetime_s=300.0)


def make_prompt(tokens: int, tail: bytes = b"") -> bytes:
    """Bytes of so many tokens; the last ones are `tail`."""
    body = b"".join(b"%04d" % (number % 10_000) for number in range(tokens))
    return body[: len(body) - len(tail)] + tail


def ask(
    cache: PromptCache, prompt: bytes, now: float = 0.0, account: str = "a", model: str = "m"
) -> tuple[int, int]:
    """One whole call: (cached tokens, tokens written)."""
    lookup = cache.look_up(account, model, prompt, RULES, now)
    cache.store(lookup, now)
    return lookup.cached_tokens, lookup.write_tokens


@pytest.mark.parametrize(
    ("tokens", "written"),
    [(1, 0), (1023, 0), (1024, 1024), (1025, 1024), (1151, 1024), (1152, 1152), (1279, 1152), (1280, 1280)],
)
def test_a_prompt_is_cached_from_1024_tokens_in_steps_of_128(tokens: int, written: int) -> None:
    cache = PromptCache()
    assert ask(cache, make_prompt(tokens)) == (0, written)
    assert ask(cache, make_prompt(tokens)) == (written, 0)


@pytest.mark.parametrize(
    ("shared", "cached"), [(1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (1999, 1920), (2000, 1920)]
)
def test_only_whole_shared_steps_are_read(shared: int, cached: int) -> None:
    cache = PromptCache()
    first = make_prompt(2000)
    other = first[: shared * 4] + b"x" * (8000 - shared * 4)
    ask(cache, first)
    assert ask(cache, other)[0] == cached


def test_a_growing_conversation_reads_what_it_had_and_writes_the_rest() -> None:
    cache = PromptCache()
    assert ask(cache, make_prompt(1500)) == (0, 1408)
    assert ask(cache, make_prompt(3000)) == (1408, 1536)
    assert ask(cache, make_prompt(3000)) == (2944, 0)


def test_one_changed_byte_at_the_start_loses_everything() -> None:
    cache = PromptCache()
    ask(cache, make_prompt(4000))
    assert ask(cache, b"X" + make_prompt(4000)[1:]) == (0, 3968)


def test_an_entry_ends_with_its_lifetime() -> None:
    cache = PromptCache()
    ask(cache, make_prompt(2048), now=0.0)
    assert ask(cache, make_prompt(2048), now=299.9)[0] == 2048
    ask(cache, make_prompt(1024), now=1000.0)
    assert ask(cache, make_prompt(1024), now=1300.0) == (0, 1024)


def test_each_read_refreshes_what_it_used() -> None:
    cache = PromptCache()
    ask(cache, make_prompt(2048), now=0.0)
    for now in (200.0, 400.0, 600.0):
        assert cache.look_up("a", "m", make_prompt(1024), RULES, now).cached_tokens == 1024
    # The second half was not read since 0 and is gone; the first half lives on.
    assert ask(cache, make_prompt(2048), now=700.0) == (1024, 1024)


def test_accounts_and_models_do_not_share() -> None:
    cache = PromptCache()
    ask(cache, make_prompt(2048), account="a", model="m")
    assert ask(cache, make_prompt(2048), account="b", model="m")[0] == 0
    assert ask(cache, make_prompt(2048), account="a", model="n")[0] == 0
    assert ask(cache, make_prompt(2048), account="a", model="m")[0] == 2048


def test_a_prompt_is_cached_only_once_it_is_stored() -> None:
    cache = PromptCache()
    first = cache.look_up("a", "m", make_prompt(2048), RULES, 0.0)
    second = cache.look_up("a", "m", make_prompt(2048), RULES, 0.0)
    assert (first.cached_tokens, second.cached_tokens) == (0, 0)
    assert (first.write_tokens, second.write_tokens) == (2048, 2048)
    cache.store(first, 0.1)
    assert cache.look_up("a", "m", make_prompt(2048), RULES, 0.2).cached_tokens == 2048


def test_the_cache_is_bounded_and_forgets_the_least_recently_used() -> None:
    cache = PromptCache(max_entries=20)
    ask(cache, make_prompt(1024), account="old")
    ask(cache, make_prompt(1024), account="new")
    ask(cache, make_prompt(1024), account="old")
    ask(cache, make_prompt(1024), account="third")
    assert len(cache) == 20
    assert ask(cache, make_prompt(1024), account="old")[0] == 1024
    assert ask(cache, make_prompt(1024), account="new")[0] == 0


def test_a_prefix_longer_than_the_cache_keeps_its_head() -> None:
    cache = PromptCache(max_entries=10)
    ask(cache, make_prompt(128 * 14))
    assert len(cache) == 10
    assert cache.look_up("a", "m", make_prompt(128 * 14), RULES, 0.0).cached_tokens == 1280


def test_clear_forgets_everything() -> None:
    cache = PromptCache()
    ask(cache, make_prompt(2048))
    cache.clear()
    assert ask(cache, make_prompt(2048))[0] == 0
