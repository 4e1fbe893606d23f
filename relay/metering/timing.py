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


_ORDER = (
    ("auth", "authenticated"),
    ("receive", "received"),
    ("route", "routed"),
    ("permit", "permitted"),
    ("failover", "attempt_started"),
    ("connect", "connected"),
    ("send", "sent"),
    ("upstream_wait", "headers"),
    ("prefill", "first_token"),
    ("decode", "upstream_done"),
    ("relay_overhead", "ended"),
)


def stages(marks: Marks) -> dict[str, float]:
    """Stage -> ms, zero ones left out; they sum to the total to the microsecond."""
    ended = marks.ended or perf_counter()
    found: dict[str, float] = {}
    at = marks.accepted
    for stage, mark in _ORDER:
        then = ended if mark == "ended" else getattr(marks, mark)
        if then > at:
            found[stage] = (then - at) * 1000
            at = then
    if marks.write_wait:
        waited = marks.write_wait * 1000
        for stage in ("decode", "relay_overhead"):
            taken = min(waited, found.get(stage, 0.0))
            if taken:
                found[stage] -= taken
                found["client_write_wait"] = found.get("client_write_wait", 0.0) + taken
                waited -= taken
    return {stage: round(ms, 3) for stage, ms in found.items() if ms >= 0.0005}


def ttft_ms(marks: Marks) -> float | None:
    """Acceptance to the first token handed to the server, or None for a call without tokens."""
    return round((marks.first_token_out - marks.accepted) * 1000, 3) if marks.first_token_out else None


def ttfb_ms(marks: Marks) -> float | None:
    """Acceptance to the first body byte handed to the server."""
    return round((marks.first_byte_out - marks.accepted) * 1000, 3) if marks.first_byte_out else None


def server_timing(marks: Marks) -> bytes:
    """The `Server-Timing` header: the stages known when the headers go out."""
    parts = []
    at = marks.accepted
    for stage, mark in _ORDER:
        then = getattr(marks, mark)
        if then > at:
            parts.append(f"{stage};dur={(then - at) * 1000:.2f}")
            at = then
    return ", ".join(parts).encode()
