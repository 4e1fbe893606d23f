"""Pure. How many tokens something is when nobody has counted them: learnt from what upstreams reported before.

Tokens = bytes x r, r being the running median of (reported tokens / bytes) over the last calls of the model, 0.28 to
begin with (protocols.md 6.6); output is estimated from the content events seen, one token each to begin with.
"""

from collections import deque
from math import ceil
from statistics import median

__all__ = ["Estimator"]

WINDOW = 200
FIRST_TOKENS_PER_BYTE = 0.28
FIRST_TOKENS_PER_EVENT = 1.0
# Every token of a byte-level vocabulary is at least a byte; half a token a byte is above what real prompts reach
# (Chinese about 0.35, code and JSON about 0.4), so a hold made with it is an upper estimate.
HOLD_TOKENS_PER_BYTE = 0.5
# Chosen: upstreams that join tokens send a few at a time; more is no stream of text.
MOST_TOKENS_PER_EVENT = 16.0


class Estimator:
    """What one process has learnt per model. Bounded: a window of figures for each model on offer."""

    def __init__(self) -> None:
        self._per_byte: dict[str, deque[float]] = {}
        self._per_event: dict[str, deque[float]] = {}

    def learn(
        self, model: str, *, body_bytes: int, input_tokens: int, events: int, output_tokens: int
    ) -> None:
        """Take in what an upstream reported for a call of this size."""
        # Only what text can be: pictures named by their address, or nonsense, would make other people's estimates dear.
        if body_bytes > 0 and 0 < input_tokens <= body_bytes * HOLD_TOKENS_PER_BYTE:
            self._per_byte.setdefault(model, deque(maxlen=WINDOW)).append(input_tokens / body_bytes)
        if events > 4 and 0 < output_tokens <= events * MOST_TOKENS_PER_EVENT:
            self._per_event.setdefault(model, deque(maxlen=WINDOW)).append(output_tokens / events)

    def input_tokens(self, model: str, body_bytes: int) -> int:
        """The likely input of a body of this size, rounded up."""
        seen = self._per_byte.get(model)
        ratio = median(seen) if seen else FIRST_TOKENS_PER_BYTE
        return _rounded_up(body_bytes * ratio)

    def output_tokens(self, model: str, events: int) -> int:
        """The likely output behind this many content events, rounded up."""
        seen = self._per_event.get(model)
        ratio = median(seen) if seen else FIRST_TOKENS_PER_EVENT
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
