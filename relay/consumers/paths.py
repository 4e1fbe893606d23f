"""Pure. Which endpoint a path means. Tolerant where clients stray: prefixes, a doubled version, slashes."""

from functools import lru_cache

from relay.protocols.dialects import DIALECTS

__all__ = ["MODEL", "MODELS", "endpoint_of"]

MODELS = "/v1/models"
MODEL = "/v1/models/"

_LONGEST = 512


@lru_cache(maxsize=2048)
def endpoint_of(path: str) -> tuple[str, str] | None:
    """The endpoint and what follows it (a model's name), or None for a path that is not one of ours.

    >>> endpoint_of("/openai/v1/v1/chat/completions/"), endpoint_of("/v1/models/a/b"), endpoint_of("/v1/nothing")
    (('/v1/chat/completions', ''), ('/v1/models/', 'a/b'), None)
    """
    if len(path) > _LONGEST or "\x00" in path:
        return None
    path = path.removeprefix("/openai")
    while path.startswith("/v1/v1/"):
        path = path[3:]
    trimmed = path.rstrip("/")
    if trimmed in DIALECTS or trimmed == MODELS:
        return trimmed, ""
    if path.startswith(MODEL) and len(trimmed) > len(MODEL):
        return MODEL, trimmed[len(MODEL) :]
    return None
