import pytest

from console import cursor


def test_a_cursor_brings_its_parts_back():
    assert list(cursor.read("calls", cursor.make("calls", "12", "ab"), 2)) == ["12", "ab"]


def test_a_cursor_of_one_list_is_none_of_another():
    with pytest.raises(cursor.BadCursor):
        cursor.read("keys", cursor.make("calls", "12", "ab"), 2)


@pytest.mark.parametrize("text", ["", ".", "MTI.x", "12|ab", "\u00e9", "a" * 5000])
def test_what_was_not_made_here_is_refused(text):
    with pytest.raises(cursor.BadCursor):
        cursor.read("calls", text, 2)


def test_every_changed_character_is_noticed():
    made = cursor.make("calls", "12", "ab")

    for at in range(len(made)):
        changed = made[:at] + ("A" if made[at] != "A" else "B") + made[at + 1 :]
        with pytest.raises(cursor.BadCursor):
            cursor.read("calls", changed, 2)


def test_the_number_of_parts_counts():
    with pytest.raises(cursor.BadCursor):
        cursor.read("calls", cursor.make("calls", "12"), 2)
