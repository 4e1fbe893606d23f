"""Pure. The attempts of a call as they may be shown: upstream names and excerpts only to operators."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["shown_attempts"]

# What an organization may see of an attempt. Everything else (names of accounts, excerpts of their answers, request
# ids, costs) is the operator's; a field that a newer relay adds stays hidden until it is named here.
_OPEN = (
    "upstream_model",
    "protocol",
    "status",
    "outcome",
    "http_status",
    "error_kind",
    "kind",
    "started_ms",
    "connect_ms",
    "first_content_ms",
    "total_ms",
    "ms",
    "stages",
)


def shown_attempts(attempts: Iterable[Mapping[str, Any]], *, operator: bool) -> list[dict[str, Any]]:
    """The attempts in order. For others than operators each is cut to the open fields."""
    if operator:
        return [dict(attempt) for attempt in attempts]
    return [{name: attempt[name] for name in _OPEN if name in attempt} for attempt in attempts]
