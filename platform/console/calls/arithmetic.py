"""The arithmetic of a call's amount, written out from the price version that made it."""

from dataclasses import dataclass

from billing.models import Price, UsageRecord
from billing.pricing import Breakdown, Rates, TokenCounts, lines

__all__ = ["Bill", "explain_amount"]


@dataclass(frozen=True, slots=True)
class Bill:
    """The lines of one amount. `agrees` says whether they sum to what the record says was charged.

    They differ where less was charged than was used (an ending that nobody pays for).
    """

    price: Price
    breakdown: Breakdown
    agrees: bool


def explain_amount(call: UsageRecord) -> Bill | None:
    """None where the call has no price version or used no tokens, so that there is nothing to multiply."""
    if call.price_version is None:
        return None
    price = Price.objects.filter(pk=call.price_version).first()
    if price is None:
        return None
    breakdown = lines(_rates(price), _tokens(call))
    if not breakdown.lines:
        return None
    return Bill(price, breakdown, agrees=int(breakdown.total.scaleb(9)) == call.amount_nano)


def _rates(price: Price) -> Rates:
    return Rates.of(
        version=price.pk,
        model_name=price.model_name,
        currency=price.currency,
        input=price.input,
        output=price.output,
        cached_input=price.cached_input,
        cache_write_5m=price.cache_write_5m,
        cache_write_30m=price.cache_write_30m,
        cache_write_1h=price.cache_write_1h,
        read_explicit=price.read_explicit,
        discount=price.discount,
    )


def _tokens(call: UsageRecord) -> TokenCounts:
    return TokenCounts(
        uncached_input=call.uncached_input_tokens,
        cached_input=call.cached_input_tokens,
        cache_write_5m=call.cache_write_5m_tokens,
        cache_write_30m=call.cache_write_30m_tokens,
        cache_write_1h=call.cache_write_1h_tokens,
        output=call.output_tokens,
        reasoning=call.reasoning_tokens,
        explicit_cache=bool(call.cache_type),
    )
