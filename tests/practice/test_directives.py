"""What a message may ask for, and how a mistake is told."""

import re

import pytest

from practice import directives
from practice.directives import KEYS, DirectiveError, Directives, parse_directives, remove_directives


def test_a_message_without_directives_asks_for_nothing() -> None:
    assert parse_directives("write to me@practice.example or @practice") == Directives()


def test_directives_stand_anywhere_and_add_up() -> None:
    asked = parse_directives(
        "Hi @practice status=429,retry_after=2@ there @practice message=slow%2C please%40@ end"
    )
    assert (asked.status, asked.retry_after, asked.message) == (429, 2.0, "slow, please@")


def test_spaces_and_empty_items_do_not_matter() -> None:
    assert parse_directives("@practice  tokens = 5 ,, gap_ms= 1.5 , @") == Directives(tokens=5, gap_ms=1.5)
    assert parse_directives("@practice\ntokens=5\n@") == Directives(tokens=5)
    assert parse_directives("@practice@ @practice @") == Directives()


def test_a_key_without_a_value_is_a_switch_or_takes_its_default() -> None:
    asked = parse_directives("@practice html,garbage,error_event,comments,close,crlf@")
    assert (asked.html, asked.garbage, asked.error_event, asked.comments) == (True, 0, 0, 0.0)
    assert (asked.close, asked.line_end) == ("after", "\r\n")


def test_role_only_is_a_cut_after_no_content() -> None:
    assert parse_directives("@practice role_only@").cut_after == 0


def test_every_unknown_key_and_unusable_value_is_named() -> None:
    with pytest.raises(DirectiveError) as caught:
        parse_directives("@practice nope=1,status=99,tokens=-1,usage=openrouter,gzip=maybe,Status=500@")
    said = str(caught.value)
    assert "unknown key 'nope'" in said
    assert "unknown key 'Status'" in said
    assert "status=99 is not a whole number from 200 to 599" in said
    assert "tokens=-1 is not a whole number" in said
    assert "usage=openrouter is not one of openai, none, kimi, deepseek, qwen, vllm, xai" in said
    assert "gzip=maybe is not yes or no" in said


@pytest.mark.parametrize(
    "text",
    [
        "@practice status=200@",
        "@practice status=302@",
        "@practice status=204,html@",
        "@practice gap_ms=600001@",
        "@practice gap_ms=nan@",
        "@practice gap_ms=1e3@",
        "@practice tokens=1000001@",
        "@practice tokens=@",
        "@practice tokens=٣@",
        "@practice pieces=0@",
        "@practice pad=3@",
        "@practice message=@",
        "@practice message=a%0Ab@",
        "@practice content_type=a%0D%0Ax@",
        "@practice content_type=café@",
        "@practice tokens=5 and no end",
    ],
)
def test_what_cannot_be_done_is_refused(text: str) -> None:
    with pytest.raises(DirectiveError):
        parse_directives(text)


def test_a_page_may_have_any_status_with_a_body() -> None:
    assert parse_directives("@practice html,status=302@").status == 302


def test_the_message_without_its_directives_is_what_was_said() -> None:
    assert remove_directives("Hello @practice tokens=5@ world @practice gzip@") == "Hello  world"


def test_an_answer_is_long_enough_for_what_is_asked_of_it() -> None:
    assert Directives().least_chunks == 0
    assert parse_directives("@practice cut_after=70,garbage=90,stall_after=2@").least_chunks == 91


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    told = set()
    for line in (directives.__doc__ or "").splitlines():
        found = re.match(r"    ([a-z][a-z0-9_]*(?:, [a-z]+)*)(?:\[?=| {2,})", line)
        if found:
            told |= set(found[1].split(", "))
    assert told == set(KEYS)
