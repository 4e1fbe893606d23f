"""How providers spell one and the same usage."""

from practice.usage import Counts, place_usage, spell_usage

COUNTS = Counts(prompt=2000, cached=1024, written=896, output=50, reasoning=20)
TOTALS = {"prompt_tokens": 2000, "completion_tokens": 50, "total_tokens": 2050}
REASONING = {
    "reasoning_tokens": 20,
    "audio_tokens": 0,
    "accepted_prediction_tokens": 0,
    "rejected_prediction_tokens": 0,
}


def test_openai_has_details() -> None:
    assert spell_usage(COUNTS, "openai") == {
        **TOTALS,
        "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
        "completion_tokens_details": REASONING,
    }


def test_a_cache_that_counts_writes_tells_them() -> None:
    counts = Counts(prompt=2000, cached=1024, written=896, output=50, reasoning=20, counts_writes=True)
    usage = spell_usage(counts, "openai")
    assert usage is not None
    assert usage["prompt_tokens_details"] == {
        "cached_tokens": 1024,
        "audio_tokens": 0,
        "cache_write_tokens": 896,
    }


def test_kimi_has_the_cached_tokens_beside_the_totals() -> None:
    assert spell_usage(COUNTS, "kimi") == {**TOTALS, "cached_tokens": 1024}
    assert place_usage("kimi") == "choice"


def test_deepseek_counts_hits_and_misses() -> None:
    assert spell_usage(COUNTS, "deepseek") == {
        **TOTALS,
        "prompt_cache_hit_tokens": 1024,
        "prompt_cache_miss_tokens": 976,
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    assert place_usage("deepseek") == "finish"


def test_qwen_names_the_kind_of_its_cache() -> None:
    assert spell_usage(COUNTS, "qwen") == {
        **TOTALS,
        "prompt_tokens_details": {
            "cached_tokens": 1024,
            "cache_creation_input_tokens": 896,
            "cache_type": "ephemeral",
        },
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    assert place_usage("qwen") == "chunk"


def test_vllm_knows_no_reasoning_and_tells_it_every_time() -> None:
    assert spell_usage(COUNTS, "vllm") == {**TOTALS, "prompt_tokens_details": {"cached_tokens": 1024}}
    assert place_usage("vllm") == "every"


def test_xai_leaves_the_reasoning_out_of_the_completion() -> None:
    usage = spell_usage(COUNTS, "xai")
    assert usage is not None
    assert (usage["completion_tokens"], usage["total_tokens"]) == (30, 2050)
    assert usage["completion_tokens_details"] == REASONING


def test_none_is_none() -> None:
    assert spell_usage(COUNTS, "none") is None
    assert place_usage("none") == "nowhere"
