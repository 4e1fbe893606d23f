"""Pure. What is said: reasoning, text or tool calls, in pieces, with a finish reason and a count.

An `Answer` is read once, through `deltas()`; what it has counted and how each choice finished is known as far
as it was read. Several choices come in turn, one piece each. Texts are made while they are read, so a long
answer takes no memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2b
from itertools import chain, cycle, islice

import orjson

from practice.directives import Directives, remove_directives
from practice.models import Model
from practice.prompt import Prompt, Tool
from practice.refusal import Refusal
from practice.schema import make_value
from practice.text import LABEL, introduce, stop_at, write_sentences
from practice.tokens import BYTES_PER_TOKEN, count_tokens, cut_pieces

DEFAULT_SENTENCES = 2
DEFAULT_TOKENS = 40
# Reasoning chunks by `reasoning_effort`; a model that reasons without being told takes `medium`.
REASONING_TOKENS = {"none": 0, "minimal": 4, "low": 8, "medium": 16, "high": 32, "xhigh": 64, "max": 128}
_ASKS_FOR_TOOL = re.compile(r"\btools?\b|工具", re.IGNORECASE)


class Kind(Enum):
    """What a delta carries. OPEN and FINISH come once for each choice."""

    OPEN = "open"
    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"
    ARGUMENTS = "arguments"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece of one choice. `call` is the place of a tool call among the choice's calls; CALL names it."""

    kind: Kind
    choice: int
    text: str = ""
    call: int = 0
    call_id: str = ""
    custom: bool = False


class Answer:
    """The answer to one prompt. Raises Refusal when directives and prompt do not fit together."""

    def __init__(self, prompt: Prompt, model: Model, directives: Directives) -> None:
        self.finishes: list[str | None] = [None] * prompt.choices
        self._prompt = prompt
        self._model = model
        self._directives = directives
        self._seed = blake2b(prompt.model.encode() + b"\0" + prompt.rendered, digest_size=16).digest()
        self._budgets = [_Budget(prompt.max_tokens) for _ in range(prompt.choices)]
        self._calls = choose_calls(prompt, directives)

    @property
    def output_tokens(self) -> int:
        """Tokens said so far, reasoning and tool calls included."""
        return sum(budget.tokens for budget in self._budgets)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of reasoning said so far."""
        return sum(count_tokens(budget.sizes[Kind.REASONING]) for budget in self._budgets)

    def deltas(self) -> Iterator[Delta]:
        """Every piece, in the order it is said: OPEN of every choice, contents in turn, FINISH of each."""
        numbers = range(self._prompt.choices)
        yield from (Delta(Kind.OPEN, number) for number in numbers)
        running = [self._say(number) for number in numbers]
        while running:
            for choice in list(running):
                delta = next(choice, None)
                if delta is None:
                    running.remove(choice)
                else:
                    yield delta

    def _say(self, number: int) -> Iterator[Delta]:
        budget = self._budgets[number]
        yield from budget.limit(self._reason(number))
        if self._calls:
            yield from budget.limit(self._call_tools(number))
        else:
            yield from budget.limit(self._write(number))
        usual = "length" if budget.spent else "tool_calls" if self._calls else "stop"
        self.finishes[number] = self._directives.finish or usual
        yield Delta(Kind.FINISH, number)

    def _reason(self, number: int) -> Iterator[Delta]:
        wanted = self._directives.reasoning
        if wanted is None:
            effort = self._prompt.effort or "medium"
            wanted = REASONING_TOKENS.get(effort, REASONING_TOKENS["medium"]) if self._model.reasons else 0
        sentences = write_sentences(self._choice_seed(number) + b"why", multibyte=self._directives.utf8)
        pieces = cut_pieces(chain(["Practice reasoning."], sentences), self._piece_bytes)
        yield from (Delta(Kind.REASONING, number, piece) for piece in islice(pieces, wanted))

    def _write(self, number: int) -> Iterator[Delta]:
        if self._prompt.json_schema is not None:
            whole = iter([self._write_json(number)])
            pieces = cut_pieces(stop_at(whole, self._prompt.stop), self._piece_bytes)
        else:
            # Without a wish for length the text ends with a sentence.
            wanted = self._directives.tokens
            if wanted is None and self._directives.least_chunks:
                wanted = max(DEFAULT_TOKENS, self._directives.least_chunks)
            sentences = DEFAULT_SENTENCES if wanted is None else None
            source = stop_at(self._write_text(number, sentences), self._prompt.stop)
            pieces = islice(cut_pieces(source, self._piece_bytes), wanted)
        yield from (Delta(Kind.TEXT, number, piece) for piece in pieces)

    def _write_text(self, number: int, sentences: int | None) -> Iterator[str]:
        results = [(result.name, result.text) for result in self._prompt.results]
        words = remove_directives(self._prompt.user_text)
        multibyte = self._directives.utf8
        yield from introduce(self._prompt.model, words, results, multibyte=multibyte)
        yield from islice(write_sentences(self._choice_seed(number), multibyte=multibyte), sentences)

    def _write_json(self, number: int) -> str:
        schema = self._prompt.json_schema
        value = (
            make_value(schema, self._choice_seed(number)) if schema else {"practice": True, "answer": LABEL}
        )
        return orjson.dumps(value).decode()

    def _call_tools(self, number: int) -> Iterator[Delta]:
        for place, tool in enumerate(self._calls):
            seed = self._choice_seed(number) + place.to_bytes(2, "big")
            call_id = "call_practice" + blake2b(seed, digest_size=8).hexdigest()
            custom = tool.kind == "custom"
            yield Delta(Kind.CALL, number, tool.name, call=place, call_id=call_id, custom=custom)
            said = LABEL if custom else orjson.dumps(make_value(tool.schema, seed)).decode()
            for piece in cut_pieces([said], self._piece_bytes):
                yield Delta(Kind.ARGUMENTS, number, piece, call=place, custom=custom)

    @property
    def _piece_bytes(self) -> int:
        return self._directives.pad or BYTES_PER_TOKEN

    def _choice_seed(self, number: int) -> bytes:
        return self._seed + number.to_bytes(2, "big")


class _Budget:
    """Counts what a choice says and stops it at the request's ceiling; `spent` once something was cut off."""

    def __init__(self, max_tokens: int | None) -> None:
        self.sizes = {Kind.REASONING: 0, Kind.TEXT: 0, Kind.ARGUMENTS: 0}
        self.spent = False
        self._max_tokens = max_tokens

    @property
    def tokens(self) -> int:
        return sum(count_tokens(size) for size in self.sizes.values())

    def limit(self, deltas: Iterator[Delta]) -> Iterator[Delta]:
        for delta in deltas:
            if self.spent:
                return
            kind = Kind.ARGUMENTS if delta.kind is Kind.CALL else delta.kind
            size = len(delta.text.encode())
            text = delta.text
            if self._max_tokens is not None:
                others = self.tokens - count_tokens(self.sizes[kind])
                room = (self._max_tokens - others) * BYTES_PER_TOKEN - self.sizes[kind]
                if size > room:
                    self.spent = True
                    text = delta.text.encode()[: max(room, 0)].decode(errors="ignore")
                    size = len(text.encode())
                    if not text or delta.kind is Kind.CALL:
                        return
            self.sizes[kind] += size
            yield delta if text == delta.text else replace(delta, text=text)


def choose_calls(prompt: Prompt, directives: Directives) -> list[Tool]:
    """Pure. The tools an answer calls; empty for a text.

    A demanded call is made. Otherwise `calls=N` decides, and without it the last user message: every tool
    whose name it holds, or the first one if it says "tool"; neither once a tool has answered. Raises Refusal
    when calls are asked for and no tool is on offer.
    """
    choice = prompt.tool_choice
    offered = [tool for tool in prompt.tools if not choice.names or tool.name in choice.names]
    if choice.mode == "required" and not offered:
        raise Refusal(400, "tool_choice asks for a tool that is not among tools.", param="tool_choice")
    if directives.calls and not offered and not prompt.results:
        raise Refusal(400, "@practice: calls needs tools in the request", param="tools")
    if choice.mode == "none" or not offered:
        return []
    if prompt.results and choice.mode == "auto":
        return []
    if directives.calls is not None:
        called = list(islice(cycle(offered), directives.calls))
    else:
        words = remove_directives(prompt.user_text)
        called = [tool for tool in offered if tool.name in words]
        if not called and (choice.mode == "required" or _ASKS_FOR_TOOL.search(words)):
            called = offered[:1]
    return called if prompt.parallel_calls else called[:1]
