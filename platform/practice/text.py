"""Pure. The words of an answer: the same prompt always gets the same text.

Every text begins with `LABEL`, so that nobody takes it for a model's. Sentences are endless; the caller cuts.
"""

from collections.abc import Iterator
from hashlib import blake2b

LABEL = "Practice text, no model wrote it."
MULTIBYTE_LABEL = "Practice text, 没有模型写它 🐎."
QUOTE_CHARACTERS = 80
RESULT_CHARACTERS = 200

_LINES = (
    "relay station courier horse road letter seal stamp bridge river morning evening gate lantern map",
    "compass north south rider saddle stone valley harbour ferry market inn keeper ledger page ink brush",
    "scroll tower signal fire smoke bell drum flag wind rain snow summer winter field garden orchard path",
    "milestone border province capital village mountain pass forest lake shore island well kitchen tea",
)
# One, two, three and four bytes a character, so that pieces of a body split characters at every place.
_MULTIBYTE_LINES = ("驿站 换马 信使 早晨 über señal día crème 🐎 🐎🏮 𠀀𠀁 ½ß naïve 路 山川 tea",)
_WORDS = [word for line in _LINES for word in line.split()]
_MULTIBYTE_WORDS = [word for line in _MULTIBYTE_LINES for word in line.split()]


def write_sentences(seed: bytes, *, multibyte: bool = False) -> Iterator[str]:
    """Pure. Endless sentences of eight words, drawn by the seed."""
    words = _MULTIBYTE_WORDS if multibyte else _WORDS
    number = 0
    while True:
        digest = blake2b(seed + number.to_bytes(8, "big"), digest_size=8).digest()
        drawn = " ".join(words[byte % len(words)] for byte in digest)
        yield f" {drawn.capitalize()}."
        number += 1


def introduce(
    model: str, user_text: str, results: list[tuple[str, str]], *, multibyte: bool
) -> Iterator[str]:
    """Pure. The fixed beginning of an answer: the label, what tools said, what the user wrote."""
    yield f"{MULTIBYTE_LABEL if multibyte else LABEL} This is {model}."
    for name, text in results:
        yield f" The tool {name} answered: {_shorten(text, RESULT_CHARACTERS)}"
    if user_text.strip():
        yield f' You wrote: "{_shorten(user_text, QUOTE_CHARACTERS)}".'


def stop_at(source: Iterator[str], stops: tuple[str, ...]) -> Iterator[str]:
    """Pure. The text up to the first stop string, which is left out.

    Holds back as many characters as a stop string could still need, so one that spans two parts is found.
    """
    if not stops:
        yield from source
        return
    hold = max(map(len, stops)) - 1
    waiting = ""
    for text in source:
        waiting += text
        places = [place for stop in stops if (place := waiting.find(stop)) >= 0]
        if places:
            yield waiting[: min(places)]
            return
        ready = len(waiting) - hold
        if ready > 0:
            yield waiting[:ready]
            waiting = waiting[ready:]
    yield waiting


def _shorten(text: str, characters: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else line[:characters] + "…"
