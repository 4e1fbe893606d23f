import itertools
import re

import pytest
from django.utils.translation import override

from billing.models import CallStatus, UsageRecord
from console.calls import words
from relay.errors import RULES, ErrorKind

ANSWERED = [{"upstream": "secret", "upstream_model": "m", "result": "ok", "ms": 640.0, "http_status": 200}]
# Kinds that the relay refuses or ends a call with before it asks an upstream, and those it can end with later.
EARLY = [
    kind
    for kind, rule in RULES.items()
    if rule.status in ("refused", "client_error") and kind != ErrorKind.UPSTREAM_REJECTED
]
GROWN = [ErrorKind.BALANCE_SPENT, ErrorKind.BUDGET_SPENT, ErrorKind.COUNTERS_AWAY]
LATE = [kind for kind, rule in RULES.items() if rule.status not in ("refused", "client_error")]
REASONS = ("", "stop", "length", "done_without_finish", "no_terminal_event", "a-word-of-its-own")


def endings() -> list[UsageRecord]:
    """Every combination of status, error kind, end reason and progress that the relay can write."""
    found = []
    for kind in EARLY:
        found.append(UsageRecord(status=RULES[kind].status, error_kind=kind.value))
    found.append(UsageRecord(status="client_error", error_kind="upstream_rejected", attempts=ANSWERED))
    found.append(UsageRecord(status="interrupted", error_kind="process_killed"))
    for kind, reason, ttft in itertools.product(GROWN + LATE, REASONS, (None, 700.0)):
        found.append(
            UsageRecord(
                status=RULES[kind].status,
                error_kind=kind.value,
                end_reason=reason,
                ttft_ms=ttft,
                attempts=ANSWERED,
            )
        )
    for status, reason, ttft in itertools.product(("ok", "client_gone"), REASONS, (None, 700.0)):
        found.append(UsageRecord(status=status, end_reason=reason, ttft_ms=ttft, attempts=ANSWERED))
    found.append(UsageRecord(status="client_gone", end_reason=""))
    return found


def said(call: UsageRecord) -> str:
    ending = words.explain_ending(call)
    return f"{ending.happened} {ending.why}".strip()


def named(call: UsageRecord) -> str:
    parts = (
        call.status,
        call.error_kind,
        call.end_reason,
        call.ttft_ms and "begun",
        call.attempts and "asked",
    )
    return "-".join(str(part) for part in parts if part)


@pytest.mark.parametrize("call", endings(), ids=named)
def test_every_ending_of_the_relay_has_sentences_in_both_languages(call):
    with override("en"):
        english = said(call)
    with override("zh-hans"):
        chinese = said(call)

    assert english.endswith(".")
    assert chinese.endswith("。")
    assert not re.search(r"[a-z]{4,}", re.sub("a-word-of-its-own|Token", "", chinese))


@pytest.mark.parametrize("call", endings(), ids=named)
def test_no_ending_is_told_as_another(call):
    with override("en"):
        text = said(call)
    asked, begun = bool(call.attempts), call.ttft_ms is not None

    assert ("before it went to an upstream" in text) == (call.status == "refused" and not asked)
    assert ("The relay stopped the answer" in text) == (call.status == "refused" and asked)
    assert ("No upstream gave a usable answer" in text) == (
        call.status == "upstream_error" and not begun and call.error_kind != "internal"
    )
    assert ("delivered whole" in text) == (call.status == "ok")
    assert ("before the answer began" in text) == (call.status == "client_gone" and not begun)
    assert ("Nothing was charged" in text) == (call.status == "interrupted")
    if call.error_kind:
        assert "The model came to its end" not in text


@pytest.mark.parametrize("kind", GROWN)
@pytest.mark.parametrize("ttft_ms", [None, 700.0])
def test_a_stream_that_a_limit_ended_was_stopped_and_not_refused(kind, ttft_ms):
    call = UsageRecord(
        status="refused",
        error_kind=kind.value,
        http_status=200,
        ttft_ms=ttft_ms,
        end_reason="no_terminal_event",
        attempts=ANSWERED,
    )
    with override("en"):
        ending = words.explain_ending(call)
        assert str(ending.happened).startswith("The relay stopped the answer")
        assert str(ending.why).startswith("The answer outgrew what was held for it")


def test_an_ending_that_went_well_says_why_it_ended():
    assert str(words.explain_ending(UsageRecord(status="ok", end_reason="length")).why).startswith(
        "The answer reached"
    )


def test_unknown_words_do_not_break_the_page():
    ending = words.explain_ending(
        UsageRecord(status="teleported", error_kind="new_kind", end_reason="new_end")
    )

    assert (ending.happened, ending.why) == ("teleported", "")
    assert words.attempt_result("new_kind", is_last=True, status="ok") == "new_kind"


@pytest.mark.parametrize(
    "result", ["ok", "client_gone", *(kind.value for kind in ErrorKind if "upstream_" in kind)]
)
def test_every_result_of_an_attempt_has_words_in_both_languages(result):
    with override("en"):
        assert re.fullmatch(r"[A-Z][a-z ,]+", str(words.attempt_result(result, is_last=False, status="ok")))
    with override("zh-hans"):
        assert not re.search("[a-z]", str(words.attempt_result(result, is_last=False, status="ok")))


def test_the_last_attempt_of_a_call_that_broke_off_only_began_to_answer():
    assert (
        str(words.attempt_result("ok", is_last=True, status=CallStatus.UPSTREAM_ERROR)) == "Began to answer"
    )
    assert str(words.attempt_result("ok", is_last=True, status=CallStatus.OK)) == "Answered"
