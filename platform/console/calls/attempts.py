"""Pure. The attempts of a call as they may be shown: upstream names and details only to operators.

An attempt is what `relay.call.Attempt` wrote into the record: `upstream`, `upstream_model`, `result` (`ok` or an
error kind), `ms`, and `http_status` where the upstream answered at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["AttemptRow", "attempt_rows", "shown_attempts"]

# What an organization may see of an attempt. Everything else (names of accounts, excerpts of their answers, request
# ids, costs) is the operator's; a field that a newer relay adds stays hidden until it is named here.
_OPEN = ("upstream_model", "result", "http_status", "ms")
_NAMED = ("upstream", *_OPEN)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt on the call's page: `result` is the record's word. `details` is what else it says, for operators."""

    upstream: str
    upstream_model: str
    result: str
    http_status: int | None
    ms: float | None
    details: str


def shown_attempts(attempts: Iterable[Mapping[str, Any]], *, operator: bool) -> list[dict[str, Any]]:
    """The attempts in order. For others than operators each is cut to the open fields."""
    if operator:
        return [dict(attempt) for attempt in attempts]
    return [{name: attempt[name] for name in _OPEN if name in attempt} for attempt in attempts]


def attempt_rows(attempts: Iterable[Mapping[str, Any]], *, operator: bool) -> list[AttemptRow]:
    """The attempts as rows of a table; a field that is missing stays empty."""
    return [
        AttemptRow(
            upstream=str(attempt.get("upstream", "")),
            upstream_model=str(attempt.get("upstream_model", "")),
            result=str(attempt.get("result", "")),
            http_status=attempt.get("http_status"),
            ms=attempt.get("ms"),
            details=" · ".join(f"{name}: {value}" for name, value in attempt.items() if name not in _NAMED),
        )
        for attempt in shown_attempts(attempts, operator=operator)
    ]
