"""Pure. How many tokens something is when nobody has counted them: learnt from what upstreams reported before.

Tokens = bytes x r, r being the running median of (reported tokens / bytes) over the last calls of the model, 0.28 to
begin with (protocols.md 6.6); output is estimated from the content events seen, one token each to begin with.
"""

from collections import deque
from math import ceil
from statistics import median

__all__ = ["Estimator"]

WINDOW = 200
# Chosen: sorting 200 figures costs as much as a tenth of a call; after an eighth more of them is soon enough.
SORTED_SHARE = 8
FIRST_TOKENS_PER_BYTE = 0.28
FIRST_TOKENS_PER_EVENT = 1.0
# Every token of a byte-level vocabulary is at least a byte; half a token a byte is above what real prompts reach
# (Chinese about 0.35, code and JSON about 0.4), so a hold made with it is an upper estimate.
HOLD_TOKENS_PER_BYTE = 0.5
# Chosen: upstreams that join tokens send a few at a time; more is no stream of text.
MOST_TOKENS_PER_EVENT = 16.0


class _Window:
    """The last figures of one model and their median, looked for again after every few of them."""

    __slots__ = ("_figures", "_until_sorted", "median")

    def __init__(self) -> None:
        self._figures: deque[float] = deque(maxlen=WINDOW)
        self._until_sorted = 0
        self.median = 0.0

    def append(self, figure: float) -> None:
        figures = self._figures
        figures.append(figure)
        self._until_sorted -= 1
        if self._until_sorted <= 0:
            self.median = median(figures)
            self._until_sorted = len(figures) // SORTED_SHARE


def _take_in(windows: dict[str, _Window], model: str, figure: float) -> None:
    window = windows.get(model)
    if window is None:
        window = windows[model] = _Window()
    window.append(figure)


class Estimator:
    """What one process has learnt per model. Bounded: a window of figures for each model on offer."""

    def __init__(self) -> None:
        self._per_byte: dict[str, _Window] = {}
        self._per_event: dict[str, _Window] = {}

    def learn(
        self, model: str, *, body_bytes: int, input_tokens: int, events: int, output_tokens: int
    ) -> None:
        """Take in what an upstream reported for a call of this size."""
        # Only what text can be: pictures named by their address, or nonsense, would make other people's estimates dear.
        if body_bytes > 0 and 0 < input_tokens <= body_bytes * HOLD_TOKENS_PER_BYTE:
            _take_in(self._per_byte, model, input_tokens / body_bytes)
        if events > 4 and 0 < output_tokens <= events * MOST_TOKENS_PER_EVENT:
            _take_in(self._per_event, model, output_tokens / events)

    def input_tokens(self, model: str, body_bytes: int) -> int:
        """The likely input of a body of this size, rounded up."""
        seen = self._per_byte.get(model)
        ratio = seen.median if seen is not None else FIRST_TOKENS_PER_BYTE
        return _rounded_up(body_bytes * ratio)

    def output_tokens(self, model: str, events: int) -> int:
        """The likely output behind this many content events, rounded up."""
        seen = self._per_event.get(model)
        ratio = seen.median if seen is not None else FIRST_TOKENS_PER_EVENT
        return _rounded_up(events * ratio)

    @staticmethod
    def plain_output_tokens(message_bytes: int) -> int:
        """The likely output behind the messages of a plain answer, rounded up."""
        return _rounded_up(message_bytes * FIRST_TOKENS_PER_BYTE)

    @staticmethod
    def hold_input_tokens(body_bytes: int, context_tokens: int) -> int:
        """An upper estimate of the input, never above what the model can read."""
        return min(context_tokens, _rounded_up(body_bytes * HOLD_TOKENS_PER_BYTE))


def _rounded_up(tokens: float) -> int:
    """28.000000000000004, which is 100 x 0.28, is 28."""
    return ceil(tokens - 1e-6)
