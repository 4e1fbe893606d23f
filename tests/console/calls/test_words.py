import pytest
from django.utils.translation import override

from billing.models import CallStatus, UsageRecord
from console.calls import words
from relay.errors import ErrorKind


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_error_kind_of_the_relay_has_a_sentence(kind):
    ending = words.explain_ending(UsageRecord(status="upstream_error", error_kind=kind.value))

    assert str(ending.why).endswith(".")


@pytest.mark.parametrize("status", CallStatus.values)
def test_every_status_has_a_sentence_in_both_languages(status):
    sentence = words.explain_ending(UsageRecord(status=status)).happened

    with override("en"):
        assert str(sentence).endswith(".")
    with override("zh-hans"):
        assert str(sentence).endswith("。")


def test_an_ending_that_went_well_says_why_it_ended():
    assert str(words.explain_ending(UsageRecord(status="ok", end_reason="length")).why).startswith(
        "The answer reached"
    )


def test_unknown_words_do_not_break_the_page():
    ending = words.explain_ending(
        UsageRecord(status="teleported", error_kind="new_kind", end_reason="new_end")
    )

    assert (ending.happened, ending.why) == ("teleported", "")
