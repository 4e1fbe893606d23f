"""Where the time of one call went: marks set along the walk, and the stages between them.

Marks are `time.perf_counter()` seconds. Stages are milliseconds that follow each other and sum to the total; what no
mark explains is `unexplained`. TTFT is acceptance to the first *token* (first non-empty text, reasoning or tool
argument), TTFB to the first body byte that was handed to the server.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from operator import mul, sub

from msgspec import Struct
from msgspec.structs import astuple

__all__ = ["Marks", "server_timing", "stages", "total_ms", "ttfb_ms", "ttft_ms"]


class Marks(Struct):
    """0.0: the call never came there. `write_wait` is the time spent waiting for a slow client, in seconds.

    The fields up to `ended` stand in the order of `_STAGES`: each is the end of its stage.
    """

    accepted: float
    authenticated: float = 0.0
    received: float = 0.0
    routed: float = 0.0
    permitted: float = 0.0
    attempt_started: float = 0.0
    connected: float = 0.0
    sent: float = 0.0
    headers: float = 0.0
    first_token: float = 0.0
    upstream_done: float = 0.0
    ended: float = 0.0
    first_byte_out: float = 0.0
    first_token_out: float = 0.0
    write_wait: float = 0.0


_STAGES = (
    "auth",
    "receive",
    "route",
    "permit",
    "failover",
    "connect",
    "send",
    "upstream_wait",
    "prefill",
    "decode",
    "relay_overhead",
)

_US = (1e6,) * len(_STAGES)


def stages(marks: Marks) -> dict[str, float]:
    """Stage -> ms, zero ones left out; they sum to the total to the microsecond."""
    # A mark that is missing, or lies before an earlier one, adds nothing. No loop in Python: every call comes here.
    moments = tuple(accumulate(astuple(marks)[: len(_STAGES) + 1], max))
    passed_us = map(round, map(mul, map(sub, moments[1:], moments), _US))
    found = {stage: us / 1000 for stage, us in zip(_STAGES, passed_us, strict=False) if us}
    if marks.write_wait:
        _take_out_waiting(found, marks.write_wait * 1000)
    return found


def _take_out_waiting(found: dict[str, float], waited_ms: float) -> None:
    """Waiting for a slow client happened inside the last stages: show it apart."""
    for stage in ("decode", "relay_overhead"):
        taken = min(round(waited_ms, 3), found.get(stage, 0.0))
        if taken > 0:
            left = round(found.pop(stage) - taken, 3)
            if left > 0:
                found[stage] = left
            found["client_write_wait"] = round(found.get("client_write_wait", 0.0) + taken, 3)
            waited_ms -= taken


def total_ms(marks: Marks) -> float:
    """Acceptance to the end of the call."""
    return _ms(marks.ended - marks.accepted)


def ttft_ms(marks: Marks) -> float | None:
    """Acceptance to the first token handed to the server, or None for a call without tokens."""
    return _ms(marks.first_token_out - marks.accepted) if marks.first_token_out else None


def ttfb_ms(marks: Marks) -> float | None:
    """Acceptance to the first body byte handed to the server."""
    return _ms(marks.first_byte_out - marks.accepted) if marks.first_byte_out else None


def _ms(seconds: float) -> float:
    # To the microsecond; `round` with digits takes ten times as long.
    return int(seconds * 1e6 + 0.5) / 1000


def server_timing(found: Mapping[str, float]) -> bytes:
    """The `Server-Timing` header for `stages`."""
    return (_format(tuple(found)) % tuple(found.values())).encode()


@lru_cache(maxsize=256)
def _format(shown: tuple[str, ...]) -> str:
    return ", ".join(f"{stage};dur=%.3f" for stage in shown)
