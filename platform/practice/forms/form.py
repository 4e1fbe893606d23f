"""Pure. What a wire form is made of: how it is read, how an answer and a refusal look in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from practice.answer import Answer
from practice.cache import Lookup
from practice.directives import Directives
from practice.models import Model
from practice.prompt import Prompt
from practice.refusal import Refusal
from practice.usage import Counts


class EventKind(Enum):
    """What an event of a stream means to the script. DONE is the form's end marker."""

    OPEN = "open"
    CONTENT = "content"
    FINISH = "finish"
    USAGE = "usage"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream, not yet framed; `name` is the SSE event name of forms that use one."""

    kind: EventKind
    data: bytes
    name: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call that will be answered: what was asked, what is said, and how it is labelled."""

    prompt: Prompt
    model: Model
    directives: Directives
    lookup: Lookup
    answer: Answer
    answer_id: str
    created: int

    @property
    def shown_model(self) -> str:
        """The model's name in the answer."""
        return self.directives.answer_model or self.model.name

    @property
    def counts(self) -> Counts:
        """What was used as far as the answer was read."""
        return Counts(
            prompt=self.lookup.prompt_tokens,
            cached=self.lookup.cached_tokens,
            written=self.lookup.write_tokens,
            output=self.answer.output_tokens,
            reasoning=self.answer.reasoning_tokens,
            counts_writes=self.model.cache.counts_writes,
        )


@dataclass(frozen=True, slots=True)
class Form:
    """The functions of one wire form. `read_prompt` raises Refusal. `embeds`: its models make vectors."""

    read_prompt: Callable[[dict[str, object]], Prompt]
    render_events: Callable[[Exchange], Iterator[Event]]
    render_body: Callable[[Exchange], bytes]
    render_refusal: Callable[[Refusal], bytes]
    render_refusal_event: Callable[[Refusal], Event]
    id_prefix: str = "chatcmpl-"
    input_field: str = "messages"
    embeds: bool = False
