"""Pure. Which class of program calls, from its User-Agent: what the call list shows and diagnosis groups by."""

from functools import lru_cache

__all__ = ["program_of"]

_STARTS = (
    ("claude-cli", "claude-code"),
    ("codex_", "codex"),
    ("geminicli", "gemini-cli"),
    ("opencode", "opencode"),
    ("openai/python", "openai-python"),
    ("asyncopenai/python", "openai-python"),
    ("openai/js", "openai-node"),
    ("anthropic/python", "anthropic-python"),
    ("asyncanthropic/python", "anthropic-python"),
    ("anthropic/js", "anthropic-node"),
    ("google-genai-sdk", "google-genai"),
    ("ai/", "ai-sdk"),
    ("ai-sdk", "ai-sdk"),
    ("cursor", "cursor"),
    ("cherrystudio", "cherry-studio"),
    ("python-httpx", "httpx"),
    ("python-requests", "requests"),
    ("aiohttp", "aiohttp"),
    ("curl/", "curl"),
    ("mozilla/", "browser"),
)


@lru_cache(maxsize=512)
def program_of(user_agent: bytes) -> str:
    """The class of program, "other" for an unknown one, "" for none.

    >>> program_of(b"OpenAI/Python 3.57.0"), program_of(b""), program_of(b"thing/1")
    ('openai-python', '', 'other')
    """
    text = user_agent[:200].decode("latin-1").lower()
    if "cherrystudio" in text:
        return "cherry-studio"
    for start, name in _STARTS:
        if text.startswith(start):
            return name
    return "other" if text else ""
