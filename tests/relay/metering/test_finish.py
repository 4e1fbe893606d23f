"""Closing the books of a call: once, with its price, its line in the journal and its settling."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from billing.pricing import Rates
from billing.records import CallRecord
from relay.call import Attempt, Call
from relay.call_id import new_call_id
from relay.metering.estimate import Estimator
from relay.metering.finish import Books, Ending
from relay.metering.journal import Journal
from relay.metering.timing import Marks
from relay.protocols.usage import Usage

RATES = Rates.of(
    version=9, model_name="m", currency="USD", input="2", cached_input="0.2", output="10", discount="0.5"
)


class Desk:
    """Books with what they write to."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder)
        self.settled: list[tuple[int, str, int]] = []
        self.estimator = Estimator()
        self.books = Books(self.journal, lambda *given: self.settled.append(given), self.estimator)

    def close(self, call: Call, ending: Ending, *, rates: Rates | None = RATES) -> CallRecord:
        self.books.close(call, Marks(0.0), ending, rates=rates, cost_multiplier=1_500_000)
        return msgspec.json.decode(self.journal.batch(99)[-1], type=CallRecord)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.journal.close_files()


def call(**fields: object) -> Call:
    usual = {
        "organization_id": 3,
        "key_id": 4,
        "currency": "USD",
        "model": "m",
        "body_bytes": 1000,
        "has_hold": True,
        "input_held": 500,
        "output_held": 8192,
        "context_tokens": 100_000,
    }
    return Call(new_call_id(), "/v1/x", "openai", **{**usual, **fields})  # type: ignore[arg-type]


def test_it_works(desk: Desk) -> None:
    one = call(committed=True, upstream_id=2, attempts=[Attempt("a", "x", "upstream_cut"), Attempt("b", "y")])
    usage = Usage(uncached_input=100, cached_input=1000, output=10, reasoning=4, flags=("f",))
    record = desk.close(one, Ending("ok", 200, end_reason="stop", usage=usage, events=10))
    assert (record.status, record.usage_source, record.end_reason) == ("ok", "reported", "stop")
    # 100 x 2 + 1000 x 0.2 + 10 x 10 per million, half of it; the upstream's cost is one and a half times the list.
    assert (record.amount_nano, record.cost_nano) == (250_000, 750_000)
    assert (record.upstream_id, record.upstream, record.upstream_model) == (2, "b", "y")
    assert [attempt["result"] for attempt in record.attempts] == ["upstream_cut", "ok"]
    assert (record.price_version, record.currency, record.usage_flags) == (9, "USD", ["f"])
    assert desk.settled == [(3, one.id, 250_000)]


def test_only_the_first_ending_counts(desk: Desk) -> None:
    one = call()
    desk.close(one, Ending("ok", 200, usage=Usage(uncached_input=1)))
    desk.close(one, Ending("client_gone", 499))
    assert (desk.journal.queued, len(desk.settled)) == (1, 1)


def test_a_call_without_a_hold_settles_nothing(desk: Desk) -> None:
    record = desk.close(call(has_hold=False), Ending("refused", 429, error_kind="budget_spent"))
    assert (record.amount_nano, record.usage_source, desk.settled) == (0, "", [])


def test_a_call_without_a_price_costs_nothing(desk: Desk) -> None:
    record = desk.close(
        call(has_hold=False), Ending("client_error", 404, error_kind="unknown_model"), rates=None
    )
    assert (record.amount_nano, record.price_version) == (0, None)


def test_what_is_not_charged_still_has_its_cost(desk: Desk) -> None:
    record = desk.close(call(), Ending("interrupted", 200, usage=Usage(uncached_input=100)))
    assert (record.amount_nano, record.cost_nano) == (0, 300_000)


def test_missing_usage_is_estimated_from_bytes_and_events(desk: Desk) -> None:
    record = desk.close(call(committed=True), Ending("client_gone", 200, events=7))
    assert (record.uncached_input_tokens, record.output_tokens, record.usage_source) == (280, 7, "estimated")
    plain = desk.close(call(committed=True), Ending("ok", 200, output_estimate=33))
    assert plain.output_tokens == 33


def test_estimates_learn_from_what_was_reported(desk: Desk) -> None:
    desk.close(call(committed=True), Ending("ok", 200, usage=Usage(uncached_input=500, output=20), events=10))
    record = desk.close(call(committed=True), Ending("client_gone", 200, events=10))
    assert (record.uncached_input_tokens, record.output_tokens) == (500, 20)


def test_a_guess_costs_no_more_than_the_hold_covers(desk: Desk) -> None:
    one = call(committed=True, input_held=100, output_held=5)
    record = desk.close(one, Ending("client_gone", 200, events=70))
    assert (record.uncached_input_tokens, record.output_tokens, record.usage_source) == (100, 5, "estimated")


def test_a_report_beyond_belief_is_not_billed_and_not_learnt(desk: Desk) -> None:
    absurd = Usage(uncached_input=10**9, output=10**9)
    record = desk.close(call(committed=True), Ending("ok", 200, usage=absurd, events=7))
    assert (record.uncached_input_tokens, record.output_tokens, record.usage_source) == (280, 7, "estimated")
    assert record.usage_flags == ["report_beyond_belief"]
    assert desk.estimator.input_tokens("m", 1000) == 280


def test_nothing_is_learnt_from_an_answer_that_broke_off(desk: Desk) -> None:
    broken = Ending("upstream_error", 200, usage=Usage(uncached_input=900, output=90), events=10)
    desk.close(call(committed=True), broken)
    assert desk.estimator.input_tokens("m", 1000) == 280


def test_the_answers_own_tier_wins_over_the_one_asked_for(desk: Desk) -> None:
    assert (
        desk.close(call(service_tier="flex"), Ending("ok", 200, service_tier="default")).service_tier
        == "default"
    )
    assert desk.close(call(service_tier="flex"), Ending("refused", 429)).service_tier == "flex"
