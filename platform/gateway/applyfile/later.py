"""Pure. What the schema of apply files knows and this version does not support yet.

A field here is refused by name as soon as it says something: null, false and an empty value mean that it is
not used. Nothing of a file is ever ignored in silence.
"""

from collections.abc import Mapping

__all__ = ["FIELDS", "KINDS", "PROTOCOLS"]

_LIMITS = (
    "daily_limit",
    "monthly_limit",
    "tpm",
    "rpd",
    "input_price_limit",
    "output_price_limit",
    "ip_allow",
    "expires_at",
    "alert_at",
    "balance_floor",
    "reserved",
    "models",
    "scopes",
)

FIELDS: Mapping[str, tuple[str, ...]] = {
    "upstream": ("hedge",),
    "upstream.limits": ("rpm", "tpm", "rpd", "concurrency"),
    "model": (),
    "price": (
        "image_input",
        "image_cached_input",
        "image_output",
        "audio_input",
        "audio_cached_input",
        "audio_output",
        "per_call",
        "per_image",
        "per_second",
        "per_character",
        "web_search",
        "tiers",
    ),
    "organization": ("groups", "key_groups", "credit_line"),
    "organization.limits": _LIMITS,
    "member": ("limits",),
    "key": ("group", "groups", "expires_at", "ip_allow"),
    "key.limits": _LIMITS,
}

PROTOCOLS = ("openai-responses", "anthropic", "gemini")
KINDS = ("rerank", "image", "audio", "moderation")
