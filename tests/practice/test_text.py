"""The words of an answer."""

from itertools import islice

from practice.text import LABEL, introduce, stop_at, write_sentences


def test_the_same_seed_gives_the_same_sentences_and_another_seed_others() -> None:
    first, again, other = (list(islice(write_sentences(seed), 5)) for seed in (b"a", b"a", b"b"))
    assert first == again
    assert first != other
    assert len(set(first)) == 5


def test_every_answer_says_that_it_is_practice_text() -> None:
    plain = "".join(introduce("practice-chat", "Hello  there\nyou", [], multibyte=False))
    assert plain == f'{LABEL} This is practice-chat. You wrote: "Hello there you".'
    assert "Practice text" in "".join(introduce("practice-chat", "", [], multibyte=True))


def test_a_long_message_and_a_long_tool_result_are_shortened() -> None:
    said = "".join(introduce("practice-chat", "w" * 500, [("look", "r" * 500)], multibyte=False))
    assert "The tool look answered: " + "r" * 200 + "…" in said
    assert '"' + "w" * 80 + '…"' in said


def test_multibyte_text_has_characters_of_every_length() -> None:
    text = "".join(islice(write_sentences(b"a", multibyte=True), 40))
    assert {len(character.encode()) for character in text} == {1, 2, 3, 4}


def test_a_stop_string_ends_the_text_wherever_it_is_split() -> None:
    text = "one two three"
    for cut in range(len(text) + 1):
        parts = iter([text[:cut], text[cut:]])
        assert "".join(stop_at(parts, ("two", "zzz"))) == "one "


def test_the_earliest_of_several_stop_strings_wins() -> None:
    assert "".join(stop_at(iter(["abcdef"]), ("e", "cd"))) == "ab"


def test_without_a_stop_string_everything_is_said() -> None:
    assert "".join(stop_at(iter(["abc", "def"]), ())) == "abcdef"
    assert "".join(stop_at(iter(["abc", "def"]), ("xyz", "efg"))) == "abcdef"
