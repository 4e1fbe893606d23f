"""Tokens and the pieces a text is cut into."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from practice.tokens import count_tokens, cut_pieces


def test_four_bytes_are_a_token_and_a_started_one_counts() -> None:
    assert [count_tokens(size) for size in (0, 1, 3, 4, 5, 8, 9)] == [0, 1, 1, 1, 2, 2, 3]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8), st.integers(4, 9)
)
def test_pieces_join_to_the_text_and_are_as_many_as_its_started_multiples(
    parts: list[str], size: int
) -> None:
    text = "".join(parts)
    pieces = list(cut_pieces(parts, size))
    assert "".join(pieces) == text
    assert all(pieces)
    assert len(pieces) == -(-len(text.encode()) // size)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_the_first_pieces_are_as_many_tokens_as_pieces(text: str) -> None:
    pieces = list(cut_pieces([text]))
    for number in range(1, len(pieces) + 1):
        assert count_tokens(len("".join(pieces[:number]).encode())) == number


def test_an_endless_text_is_cut_as_it_comes() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "驿站 "

    pieces = cut_pieces(endless())
    assert [next(pieces) for _ in range(4)] == ["驿", "站 ", "驿", "站 "]
