"""The last station: price what was used, write the close line, hand the amount to the holds. Once per call.

Synchronous from end to end, so that no cancellation can come between: it runs in every ending, before the last bytes
of the answer are handed to the server.
"""

import logging
from collections.abc import Callable
from time import perf_counter

from msgspec import Struct

from billing.pricing import Rates, amount_and_cost_nano
from billing.records import CallRecord
from relay.call import Call
from relay.metering.endings import charged_usage
from relay.metering.estimate import Estimator
from relay.metering.journal import Journal
from relay.metering.timing import Marks, stages, total_ms, ttfb_ms, ttft_ms
from relay.protocols.usage import Usage

__all__ = ["Books", "Ending", "Settle"]

# Chosen: providers count a little differently from each other, never by this factor.
BELIEF = 4

Settle = Callable[[int, str, int], None]
"""Takes the organization, the call and its true amount; returns at once."""

log = logging.getLogger(__name__)


class Ending(Struct):
    """How a call ended. `usage` is what the upstream reported.

    Where it is missing, the output is estimated from the content events that were delivered, or is `output_estimate`
    (plain answers).
    """

    status: str
    http_status: int
    error_kind: str = ""
    end_reason: str = ""
    usage: Usage | None = None
    events: int = 0
    output_estimate: int = 0
    service_tier: str = ""


class Books:
    """Closes the books of calls."""

    def __init__(self, journal: Journal, settle: Settle, estimator: Estimator) -> None:
        self._journal = journal
        self._settle = settle
        self._estimator = estimator

    def close(
        self, call: Call, marks: Marks, ending: Ending, *, rates: Rates | None, cost_multiplier: int
    ) -> dict[str, float]:
        """Write the record and settle the hold; returns the stages. Does nothing if the books are closed already."""
        if call.is_closed:
            return {}
        call.is_closed = True
        marks.ended = perf_counter()
        usage, is_charged = self._usage_of(call, ending)
        amount = cost = 0
        if rates is not None:
            amount, cost = amount_and_cost_nano(rates, usage, cost_multiplier)
            if not is_charged:
                amount = 0
        found = stages(marks)
        self._journal.close(_record(call, marks, found, ending, usage, rates, amount, cost))
        if call.has_hold:
            self._settle(call.organization_id, call.id, amount)
        return found

    def _usage_of(self, call: Call, ending: Ending) -> tuple[Usage, bool]:
        """What the call used, and whether it is charged; learns from what was reported."""
        counted = ending.usage
        if counted is not None and not _is_believable(call, counted):
            counted = None
        if counted is None or ending.status != "ok":
            return charged_usage(
                ending.status,
                committed=call.committed,
                counted=counted,
                estimate=lambda: self._estimated(call, ending),
            )
        self._estimator.learn(
            call.model,
            body_bytes=call.body_bytes,
            input_tokens=counted.input,
            events=ending.events,
            output_tokens=counted.output,
        )
        return counted, True

    def _estimated(self, call: Call, ending: Ending) -> Usage:
        """Our own count, within what the call's hold covers: a guess must not cost more than was agreed."""
        input_tokens = self._estimator.input_tokens(call.model, call.body_bytes)
        output_tokens = ending.output_estimate or self._estimator.output_tokens(call.model, ending.events)
        if call.has_hold:
            input_tokens = min(input_tokens, call.input_held)
            output_tokens = min(output_tokens, call.output_held)
        return Usage(
            uncached_input=input_tokens,
            output=output_tokens,
            source="estimated",
            flags=("report_beyond_belief",) if ending.usage is not None else (),
        )


def _is_believable(call: Call, usage: Usage) -> bool:
    """Whether an upstream can have meant these figures: within a few times what model and request allow."""
    most = BELIEF * max(call.context_tokens, call.output_held)
    return not call.has_hold or (usage.input <= most and usage.output <= most)


def _record(  # noqa: PLR0917 - the parts of a record, each once
    call: Call,
    marks: Marks,
    found: dict[str, float],
    ending: Ending,
    usage: Usage,
    rates: Rates | None,
    amount: int,
    cost: int,
) -> CallRecord:
    last = call.attempts[-1] if call.attempts else None
    return CallRecord(
        id=call.id,
        organization_id=call.organization_id,
        key_id=call.key_id,
        member_id=call.member_id,
        task_id=call.task_id,
        client=call.client,
        endpoint=call.endpoint,
        model=call.model,
        protocol=call.protocol,
        upstream_id=call.upstream_id,
        upstream=last.upstream if last is not None else "",
        upstream_model=last.upstream_model if last is not None else "",
        answered_model=call.answered_model,
        upstream_request_id=call.upstream_request_id,
        service_tier=ending.service_tier or call.service_tier,
        reasoning_effort=call.reasoning_effort,
        stream=call.stream,
        status=ending.status,
        http_status=ending.http_status,
        error_kind=ending.error_kind,
        end_reason=ending.end_reason,
        attempts=call.attempts,
        uncached_input_tokens=usage.uncached_input,
        cached_input_tokens=usage.cached_input,
        cache_write_5m_tokens=usage.cache_write_5m,
        cache_write_30m_tokens=usage.cache_write_30m,
        cache_write_1h_tokens=usage.cache_write_1h,
        output_tokens=usage.output,
        reasoning_tokens=usage.reasoning,
        cache_type=usage.cache_type,
        usage_source=usage.source,
        usage_flags=[*usage.flags],
        price_version=rates.version if rates is not None else None,
        amount_nano=amount,
        currency=call.currency,
        cost_nano=cost,
        total_ms=total_ms(marks),
        ttft_ms=ttft_ms(marks),
        ttfb_ms=ttfb_ms(marks),
        stages=found,
    )
