"""Pure. How practice text is counted: four bytes of UTF-8 are one token, the last one may be shorter.

The same rule counts prompts and answers. Answers are cut so that one chunk of a stream is one token: N chunks
are N tokens, whatever the script of the text.
"""

from collections.abc import Iterable, Iterator

BYTES_PER_TOKEN = 4


def count_tokens(size_bytes: int) -> int:
    """Pure. Tokens in that many bytes.

    >>> count_tokens(0), count_tokens(1), count_tokens(4), count_tokens(5)
    (0, 1, 1, 2)
    """
    return -(-size_bytes // BYTES_PER_TOKEN)


def cut_pieces(source: Iterable[str], size_bytes: int = BYTES_PER_TOKEN) -> Iterator[str]:
    """Pure. The text in pieces that end at the last whole character before each multiple of `size_bytes`.

    No piece is empty and the number of pieces is the number of started multiples, because a character has
    at most four bytes; `size_bytes` must be at least four.

    >>> list(cut_pieces(["prac", "tice"])), list(cut_pieces(["驿站 on"]))
    (['prac', 'tice'], ['驿', '站 ', 'on'])
    """
    waiting, given, target = bytearray(), 0, size_bytes
    for text in source:
        waiting += text.encode()
        start = 0
        while given + len(waiting) - start >= target:
            end = start + target - given
            while end < len(waiting) and waiting[end] & 0xC0 == 0x80:
                end -= 1
            yield waiting[start:end].decode()
            given += end - start
            start = end
            target += size_bytes
        del waiting[:start]
    if waiting:
        yield waiting.decode()
