"""Everything that an upstream can do wrong: what the client gets, what the books say, and that nothing is left over.

All the calls are made side by side, once for the module; each test looks at one of them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from billing.models import UsageRecord
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.raw_client import Answer
from tests.fakes.relay_process import RelayProcess
from tests.wire.world import Tenant, World, at_once

SHORT = {"first_token_s": 0.8, "idle_s": 0.8}
PLAIN_SHORT = {"total_s": 0.8}


@dataclass(frozen=True, slots=True)
class Failure:
    """What is expected of a call that fails.

    `status` is the client's (200: the error comes as an event of the stream), `code` is that of its error, `kind` that
    of the record. `delivered` counts content chunks before the failure.
    """

    directive: str
    status: int
    code: str | None
    kind: str
    delivered: int = 0
    timeouts: dict[str, float] | None = None
    record_status: str = "upstream_error"
    upstream_status: int | None = None
    retry_after: str | None = None
    usage_source: str | None = None


BEFORE = [
    Failure("role_only", 502, "upstream_error", "upstream_cut"),
    Failure("close=before", 502, "upstream_error", "upstream_cut"),
    Failure("end_after=0", 502, "upstream_error", "upstream_cut", upstream_status=200),
    Failure("empty_body", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("html", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("html,content_type=text/event-stream", 502, "upstream_error", "upstream_cut", upstream_status=200),
    Failure("error_body", 502, "upstream_error", "upstream_broke", upstream_status=200),
    Failure("error_event", 502, "upstream_error", "upstream_broke", upstream_status=200),
    Failure("error_event=0,status=429,error_code=rate_limit_exceeded", 503, "server_is_overloaded", "upstream_busy",
            upstream_status=200),
    Failure("error_event=0,error_code=1113", 503, "server_is_overloaded", "upstream_credential", upstream_status=200),
    Failure("garbage", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("headers_delay_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("ttft_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("stall_before_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("stall_before_ms=60000,comments=50", 504, "upstream_timeout", "upstream_timeout", timeouts=SHORT),
    Failure("tokens=0,finish=none", 502, "upstream_error", "upstream_empty", upstream_status=200,
            usage_source="reported"),
]  # fmt: skip
AFTER = [
    Failure("cut_after=5,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("cut_after=5,cut=reset,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("cut_after=5,cut_half,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("cut_after=1,reasoning=3", 200, "upstream_error", "upstream_cut", 1),
    Failure("cut_after=1,calls=1", 200, "upstream_error", "upstream_cut", 1),
    Failure("cut_after=5,usage_every,tokens=20", 200, "upstream_error", "upstream_cut", 5, usage_source="partial"),
    Failure("end_after=5,tokens=20", 200, "upstream_error", "upstream_cut", 5),
    Failure("finish=none,done=none,tokens=4", 200, "upstream_error", "upstream_cut", 4, usage_source="partial"),
    Failure("framing=short,tokens=4,done=none,finish=none", 200, "upstream_error", "upstream_cut", 4,
            usage_source="partial"),
    Failure("framing=bad_chunk,tokens=4", 200, "upstream_error", "upstream_garbage", 1),
    Failure("error_event=5,tokens=20", 200, "upstream_error", "upstream_broke", 5),
    Failure("error_event=5,tokens=20,error_code=1302", 200, "server_is_overloaded", "upstream_busy", 5),
    Failure("garbage=5,tokens=20", 200, "upstream_error", "upstream_garbage", 5),
    Failure("stall_after=5,stall_ms=60000,tokens=20", 200, "upstream_timeout", "upstream_timeout", 5, timeouts=SHORT),
    Failure("tokens=500,gap_ms=20", 200, "upstream_timeout", "upstream_timeout", -1, timeouts=PLAIN_SHORT),
]  # fmt: skip
STATUSES = [
    Failure("status=429,retry_after=7", 503, "server_is_overloaded", "upstream_busy", upstream_status=429,
            retry_after="7"),
    Failure("status=429,retry_after=0.2", 503, "server_is_overloaded", "upstream_busy", upstream_status=429,
            retry_after="1"),
    Failure("status=429", 503, "server_is_overloaded", "upstream_busy", upstream_status=429),
    Failure("status=429,error_code=insufficient_quota", 503, "server_is_overloaded", "upstream_credential",
            upstream_status=429),
    Failure("status=401", 503, "server_is_overloaded", "upstream_credential", upstream_status=401),
    Failure("status=402", 503, "server_is_overloaded", "upstream_credential", upstream_status=402),
    Failure("status=403", 503, "server_is_overloaded", "upstream_credential", upstream_status=403),
    Failure("status=404", 502, "upstream_error", "upstream_broke", upstream_status=404),
    Failure("status=408", 504, "upstream_timeout", "upstream_timeout", upstream_status=408),
    Failure("status=500", 502, "upstream_error", "upstream_broke", upstream_status=500),
    Failure("status=503", 503, "server_is_overloaded", "upstream_busy", upstream_status=503),
    Failure("status=529", 503, "server_is_overloaded", "upstream_busy", upstream_status=529),
    Failure("status=520,html", 502, "upstream_error", "upstream_broke", upstream_status=520),
    Failure("status=524,html", 504, "upstream_timeout", "upstream_timeout", upstream_status=524),
    Failure("status=302,html", 502, "upstream_error", "upstream_broke", upstream_status=302),
]  # fmt: skip
JUDGED = ",message=Too long.,error_type=invalid_request_error,error_code=context_length_exceeded"
REJECTED = [f"status={status}{JUDGED}" for status in (400, 413, 422)]
PLAIN = [
    Failure("cut_after=1", 502, "upstream_error", "upstream_cut"),
    Failure("cut_after=1,cut=reset", 502, "upstream_error", "upstream_cut"),
    Failure("close=before", 502, "upstream_error", "upstream_cut"),
    Failure("framing=short", 502, "upstream_error", "upstream_cut"),
    Failure("framing=bad_chunk", 502, "upstream_error", "upstream_garbage"),
    Failure("end_after=1", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("garbage", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("html", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("empty", 502, "upstream_error", "upstream_empty", upstream_status=200),
    Failure("empty_body", 502, "upstream_error", "upstream_garbage", upstream_status=200),
    Failure("error_body", 502, "upstream_error", "upstream_broke", upstream_status=200),
    Failure("error_event,error_code=rate_limit_exceeded", 503, "server_is_overloaded", "upstream_busy",
            upstream_status=200),
    Failure("headers_delay_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=PLAIN_SHORT),
    Failure("stall_after=1,stall_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=PLAIN_SHORT),
    Failure("slow_body_ms=60000", 504, "upstream_timeout", "upstream_timeout", timeouts=PLAIN_SHORT),
]  # fmt: skip


TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }
    for name in ("look_up", "book")
]


def content_count(answer: Answer) -> int:
    """How many chunks carry content."""
    deltas = [c["delta"] for chunk in answer.chunks for c in chunk.get("choices", ())]
    names = ("content", "reasoning_content", "tool_calls")
    return sum(any(delta.get(name) for name in names) for delta in deltas)


@dataclass(frozen=True, slots=True)
class Played:
    """The answers by the names of their calls, and the records by their ids."""

    tenants: list[Tenant]
    answers: dict[str, Answer]
    records: dict[str, UsageRecord]

    def of(self, name: str) -> tuple[Answer, UsageRecord]:
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise answer
        return answer, self.records[answer.call_id]


@pytest.fixture(scope="module")
def played(relay: RelayProcess, practice: PracticeProcess, django_db_blocker) -> Iterator[Played]:
    """All of it at once."""
    with django_db_blocker.unblock():
        world = World(relay)
        tenants = {
            str(limits): world.tenant(practice.url, timeouts=limits) for limits in (None, SHORT, PLAIN_SHORT)
        }
        calls = {}
        for kind, failures in (("stream", [*BEFORE, *AFTER, *STATUSES]), ("plain", [*PLAIN, *STATUSES])):
            for failure in failures:
                tenant, text = tenants[str(failure.timeouts)], f"@practice {failure.directive}@"
                stream = True if kind == "stream" else None
                tools = TOOLS if "calls=" in failure.directive else None
                calls[f"{kind} {failure.directive}"] = partial(
                    tenant.stream, text, stream=stream, tools=tools
                )
            for directive in REJECTED:
                calls[f"{kind} {directive}"] = partial(
                    tenants["None"].stream,
                    f"@practice {directive}@",
                    stream=True if kind == "stream" else None,
                )
        answers = at_once(calls)
        made = Counter(call.func.__self__.organization.pk for call in calls.values())
        records = [
            record
            for tenant in tenants.values()
            for record in tenant.check_books(made[tenant.organization.pk])
        ]
        yield Played(list(tenants.values()), answers, {str(record.id): record for record in records})
        world.close()


def test_every_call_has_one_record_and_nothing_is_held(played: Played) -> None:
    ids = [answer.call_id for answer in played.answers.values()]
    assert sorted(ids) == sorted(str(record.id) for tenant in played.tenants for record in tenant.records())


def test_no_upstream_is_left_talking(played: Played, practice: PracticeProcess) -> None:
    practice.wait_for(open=0)


def check_failure(played: Played, kind: str, failure: Failure) -> None:
    answer, record = played.of(f"{kind} {failure.directive}")
    assert answer.is_complete
    assert answer.status == failure.status
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["code"] == failure.code
    assert answer.headers.get("retry-after") == failure.retry_after
    assert "up-" not in answer.error["message"]
    assert "127.0.0.1" not in answer.error["message"]
    assert (record.status, record.error_kind) == (failure.record_status, failure.kind)
    assert record.http_status == failure.status
    if failure.status == 200:
        assert not answer.is_done
        assert failure.delivered == -1 or content_count(answer) == failure.delivered == record.output_tokens
        assert record.usage_source == (failure.usage_source or "estimated")
        assert record.amount_nano == 2_000 * record.input_tokens + 10_000 * record.output_tokens > 0
        assert record.ttft_ms is not None
    else:
        assert answer.headers["content-type"] == "application/json"
        assert (record.amount_nano, record.usage_source, record.ttft_ms) == (
            0,
            failure.usage_source or "",
            None,
        )
        (attempt,) = record.attempts
        assert attempt["result"] == failure.kind
        assert attempt.get("http_status") == failure.upstream_status
        assert record.stages["upstream_wait"] > (record.total_ms / 2 if failure.timeouts else 0)


@pytest.mark.parametrize("failure", [*BEFORE, *AFTER, *STATUSES], ids=lambda failure: failure.directive)
def test_a_stream_that_fails(played: Played, failure: Failure) -> None:
    check_failure(played, "stream", failure)


@pytest.mark.parametrize("failure", [*PLAIN, *STATUSES], ids=lambda failure: failure.directive)
def test_a_plain_answer_that_fails(played: Played, failure: Failure) -> None:
    check_failure(played, "plain", failure)


@pytest.mark.parametrize("kind", ["stream", "plain"])
@pytest.mark.parametrize("directive", REJECTED)
def test_an_upstreams_judgement_of_the_request_is_shown(played: Played, directive: str, kind: str) -> None:
    answer, record = played.of(f"{kind} {directive}")
    assert answer.status == int(directive[7:10])
    assert answer.error["message"] == "Too long."
    assert (answer.error["type"], answer.error["code"]) == (
        "invalid_request_error",
        "context_length_exceeded",
    )
    assert answer.headers["x-should-retry"] == "false"
    assert (record.status, record.error_kind) == ("client_error", "upstream_rejected")
    assert record.amount_nano == 0
