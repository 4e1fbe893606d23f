"""Where the time of one call went: marks set along the walk, and the stages between them.

Marks are `time.perf_counter()` seconds. Stages are milliseconds that follow each other and sum to the total; what no
mark explains is `unexplained`. TTFT is acceptance to the first *token* (first non-empty text, reasoning or tool
argument), TTFB to the first body byte that was handed to the server.
"""

from dataclasses import dataclass
from time import perf_counter

__all__ = ["Marks", "server_timing", "stages", "ttfb_ms", "ttft_ms"]


@dataclass(slots=True)
class Marks:
    """0.0: the call never came there. `write_wait` is the time spent waiting for a slow client, in seconds."""

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
    first_byte_out: float = 0.0
    first_token_out: float = 0.0
    upstream_done: float = 0.0
    ended: float = 0.0
    write_wait: float = 0.0


# Chosen: what is shorter cannot be seen in a browser, and every stage costs half a microsecond to write.
SHOWN_S = 0.000_005

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


def _moments(marks: Marks, ended: float) -> tuple[float, ...]:
    """The end of each stage, in the order of `_STAGES`; 0.0 for one that the call never came to."""
    return (
        marks.authenticated,
        marks.received,
        marks.routed,
        marks.permitted,
        marks.attempt_started,
        marks.connected,
        marks.sent,
        marks.headers,
        marks.first_token,
        marks.upstream_done,
        ended,
    )


def stages(marks: Marks) -> dict[str, float]:
    """Stage -> ms, zero ones left out; they sum to the total to the microsecond."""
    found: dict[str, float] = {}
    at = marks.accepted
    for stage, then in zip(_STAGES, _moments(marks, marks.ended or perf_counter()), strict=True):
        if then > at:
            us = int((then - at) * 1e6 + 0.5)
            if us:
                found[stage] = us / 1000
            at = then
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


def ttft_ms(marks: Marks) -> float | None:
    """Acceptance to the first token handed to the server, or None for a call without tokens."""
    return round((marks.first_token_out - marks.accepted) * 1000, 3) if marks.first_token_out else None


def ttfb_ms(marks: Marks) -> float | None:
    """Acceptance to the first body byte handed to the server."""
    return round((marks.first_byte_out - marks.accepted) * 1000, 3) if marks.first_byte_out else None


def server_timing(marks: Marks) -> bytes:
    """The `Server-Timing` header: the stages known when the headers go out, from `SHOWN_S` on."""
    parts = []
    at = marks.accepted
    for stage, then in zip(_STAGES, _moments(marks, 0.0), strict=True):
        if then - at >= SHOWN_S:
            parts.append("%s;dur=%.2f" % (stage, (then - at) * 1000))  # noqa: UP031 - half the time of an f-string
        at = max(at, then)
    return ", ".join(parts).encode()
