"""Pure. A request in neutral words: what every wire form is read into.

`rendered` is the prompt as a model would see it, in the provider's order (tools, then messages): the cache
and the token count work on it. Fields of the wire that change only the answer are not part of it.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

# An image, sound or file counts as 256 tokens, whatever its size, and differs wherever its bytes differ.
_MEDIA_REPEAT = 16

ToolKind = Literal["function", "custom"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool on offer; `schema` describes a function's arguments, a custom tool takes free text."""

    name: str
    schema: dict[str, object]
    kind: ToolKind = "function"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered since the last user message."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`none`, `auto` or `required`; `names` narrows it to some tools (empty: all)."""

    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request. `json_schema` is None for plain text and `{}` for any JSON object.

    `parts` are the inputs of a request with several, each with a window of its own; `choices` are answers to
    all of them together, of which `shown` for each (None: all). `echoes` are texts to say again, one for each
    input. `dimensions` and `base64` are about vectors.
    """

    model: str
    rendered: bytes
    user_text: str
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_calls: bool = True
    results: tuple[ToolResult, ...] = ()
    max_tokens: int | None = None
    choices: int = 1
    stop: tuple[str, ...] = ()
    json_schema: dict[str, object] | None = None
    effort: str | None = None
    wants_usage: bool = False
    wants_usage_always: bool = False
    parts: tuple[bytes, ...] = ()
    shown: int | None = None
    echoes: tuple[str, ...] = ()
    logprobs: bool = False
    dimensions: int | None = None
    base64: bool = False


def render_media(source: str) -> bytes:
    """Pure. Stand-in for an image, sound or file in the rendered prompt: 256 tokens, named by its hash."""
    return (sha256(source.encode()).hexdigest() * _MEDIA_REPEAT).encode()
