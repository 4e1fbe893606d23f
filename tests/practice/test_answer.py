"""What is said to a prompt."""

import json

import jsonschema
import pytest

from practice.answer import Answer, Delta, Kind
from practice.directives import Directives, parse_directives
from practice.models import MODELS
from practice.prompt import Prompt, Tool, ToolChoice, ToolResult
from practice.refusal import Refusal

WEATHER = Tool(
    "weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
CLOCK = Tool("clock", {"type": "object", "properties": {}})
SHELL = Tool("shell", {}, "custom")


def make_prompt(text: str = "Hello", **changes: object) -> Prompt:
    return Prompt(**{"model": "practice-chat", "rendered": text.encode(), "user_text": text, **changes})


def answer(
    text: str = "Hello", *, directives: Directives | None = None, **changes: object
) -> tuple[Answer, list[Delta]]:
    prompt = make_prompt(text, **changes)
    said = Answer(prompt, MODELS[prompt.model], directives or parse_directives(text))
    return said, list(said.deltas())


def join(deltas: list[Delta], kind: Kind = Kind.TEXT, choice: int = 0) -> str:
    return "".join(delta.text for delta in deltas if delta.kind is kind and delta.choice == choice)


def test_an_answer_opens_says_something_and_finishes() -> None:
    said, deltas = answer()
    assert deltas[0].kind is Kind.OPEN
    assert deltas[-1].kind is Kind.FINISH
    text = join(deltas)
    assert text.startswith("Practice text, no model wrote it. This is practice-chat.")
    assert '"Hello"' in text
    assert text.endswith(".")
    assert said.finishes == ["stop"]
    assert said.output_tokens == -(-len(text.encode()) // 4)


def test_the_same_prompt_gets_the_same_answer_and_another_prompt_another() -> None:
    assert answer("Hello")[1] == answer("Hello")[1]
    assert answer("Hello")[1] != answer("Hallo")[1]


@pytest.mark.parametrize("wanted", [0, 1, 5, 40, 500])
def test_tokens_is_the_number_of_chunks_and_of_tokens(wanted: int) -> None:
    for more in ("", ",utf8"):
        said, deltas = answer(f"你好 @practice tokens={wanted}{more}@")
        assert sum(delta.kind is Kind.TEXT for delta in deltas) == wanted
        assert said.output_tokens == wanted
        assert said.finishes == ["stop"]


def test_max_tokens_ends_a_text_with_length() -> None:
    said, deltas = answer("Hello", max_tokens=7)
    assert (said.finishes, said.output_tokens, len(join(deltas))) == (["length"], 7, 28)
    said, deltas = answer("Hello", max_tokens=100_000)
    assert said.finishes == ["stop"]


def test_a_text_that_just_fits_has_stopped_by_itself() -> None:
    said, _ = answer("@practice tokens=7@", max_tokens=7)
    assert (said.finishes, said.output_tokens) == (["stop"], 7)


def test_a_ceiling_may_fall_into_a_character() -> None:
    said, deltas = answer("@practice utf8,pad=10,tokens=9@", max_tokens=4)
    text = join(deltas)
    assert said.finishes == ["length"]
    assert 13 <= len(text.encode()) <= 16


def test_a_stop_string_ends_the_text_before_it() -> None:
    said, deltas = answer("Hello", stop=("model wrote",))
    assert join(deltas) == "Practice text, no "
    assert said.finishes == ["stop"]


def test_several_choices_come_in_turn_and_differ() -> None:
    said, deltas = answer("Hello", choices=3)
    assert [delta.choice for delta in deltas[:3]] == [0, 1, 2]
    assert all(delta.kind is Kind.OPEN for delta in deltas[:3])
    assert [delta.choice for delta in deltas[3:9]] == [0, 1, 2, 0, 1, 2]
    assert len({join(deltas, choice=number) for number in range(3)}) == 3
    assert said.finishes == ["stop"] * 3
    assert sorted(delta.choice for delta in deltas if delta.kind is Kind.FINISH) == [0, 1, 2]


def test_a_reasoner_reasons_first_and_it_counts() -> None:
    said, deltas = answer(model="practice-reasoner")
    kinds = [delta.kind for delta in deltas]
    assert kinds.index(Kind.REASONING) == 1
    assert kinds.index(Kind.TEXT) == 17
    assert join(deltas, Kind.REASONING).startswith("Practice reasoning.")
    assert said.reasoning_tokens == 16
    assert said.output_tokens == 16 + -(-len(join(deltas).encode()) // 4)


@pytest.mark.parametrize(("effort", "chunks"), [("none", 0), ("low", 8), ("high", 32), ("unheard-of", 16)])
def test_effort_sets_the_length_of_reasoning(effort: str, chunks: int) -> None:
    assert answer(model="practice-reasoner", effort=effort)[0].reasoning_tokens == chunks
    assert answer(model="practice-chat", effort=effort)[0].reasoning_tokens == 0


def test_a_ceiling_includes_the_reasoning() -> None:
    said, deltas = answer(model="practice-reasoner", max_tokens=10)
    assert (said.reasoning_tokens, said.output_tokens, said.finishes) == (10, 10, ["length"])
    assert join(deltas) == ""
    said, deltas = answer(model="practice-reasoner", max_tokens=20)
    assert (said.reasoning_tokens, said.output_tokens, said.finishes) == (16, 20, ["length"])


def test_a_json_answer_is_json_of_its_schema() -> None:
    _, deltas = answer(json_schema={})
    assert json.loads(join(deltas)) == {"practice": True, "answer": "Practice text, no model wrote it."}
    _, deltas = answer(json_schema=WEATHER.schema)
    jsonschema.validate(json.loads(join(deltas)), WEATHER.schema)


def test_a_named_tool_is_called_with_arguments_of_its_schema() -> None:
    said, deltas = answer("what does the weather say", tools=(CLOCK, WEATHER))
    opened = [delta for delta in deltas if delta.kind is Kind.CALL]
    assert [(delta.text, delta.call) for delta in opened] == [("weather", 0)]
    assert opened[0].call_id.startswith("call_practice")
    assert sum(delta.kind is Kind.ARGUMENTS for delta in deltas) > 3
    jsonschema.validate(json.loads(join(deltas, Kind.ARGUMENTS)), WEATHER.schema)
    assert said.finishes == ["tool_calls"]
    assert join(deltas) == ""


def test_several_named_tools_are_called_at_once_unless_that_is_refused() -> None:
    text = "weather and clock please"
    _, deltas = answer(text, tools=(CLOCK, WEATHER))
    assert [delta.text for delta in deltas if delta.kind is Kind.CALL] == ["clock", "weather"]
    assert len({delta.call_id for delta in deltas if delta.kind is Kind.CALL}) == 2
    _, deltas = answer(text, tools=(CLOCK, WEATHER), parallel_calls=False)
    assert [delta.text for delta in deltas if delta.kind is Kind.CALL] == ["clock"]


@pytest.mark.parametrize("text", ["please use a tool", "TOOLS!", "请用工具"])
def test_the_word_tool_calls_the_first(text: str) -> None:
    _, deltas = answer(text, tools=(CLOCK, WEATHER))
    assert [delta.text for delta in deltas if delta.kind is Kind.CALL] == ["clock"]


@pytest.mark.parametrize("text", ["Hello", "I own a toolbox", "@practice message=tool@"])
def test_a_message_that_asks_for_no_tool_gets_text(text: str) -> None:
    assert answer(text, tools=(CLOCK, WEATHER))[0].finishes == ["stop"]


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        (ToolChoice("none"), []),
        (ToolChoice("required"), ["clock"]),
        (ToolChoice("required", ("weather",)), ["weather"]),
        (ToolChoice("auto", ("weather",)), ["weather"]),
    ],
)
def test_the_choice_of_tools_is_obeyed(choice: ToolChoice, called: list[str]) -> None:
    text = "tool" if choice.mode == "auto" else "Hello"
    _, deltas = answer(text, tools=(CLOCK, WEATHER), tool_choice=choice)
    assert [delta.text for delta in deltas if delta.kind is Kind.CALL] == called


def test_a_choice_that_names_no_tool_is_refused() -> None:
    for choice in (ToolChoice("required", ("nothing",)), ToolChoice("required")):
        with pytest.raises(Refusal) as caught:
            answer(tools=(CLOCK,) if choice.names else (), tool_choice=choice)
        assert (caught.value.status, caught.value.param) == (400, "tool_choice")


def test_calls_by_directive_take_the_tools_in_turn() -> None:
    _, deltas = answer("@practice calls=3@", tools=(CLOCK, WEATHER))
    assert [delta.text for delta in deltas if delta.kind is Kind.CALL] == ["clock", "weather", "clock"]
    assert [delta.call for delta in deltas if delta.kind is Kind.CALL] == [0, 1, 2]
    assert answer("use a tool @practice calls=0@", tools=(CLOCK,))[0].finishes == ["stop"]
    with pytest.raises(Refusal):
        answer("@practice calls=1@")


def test_a_tool_result_gets_a_text_that_mentions_it() -> None:
    results = (ToolResult("weather", "18 degrees"), ToolResult("clock", "noon"))
    for text in ("weather please", "@practice calls=1@"):
        said, deltas = answer(text, tools=(WEATHER,), results=results)
        assert "The tool weather answered: 18 degrees" in join(deltas)
        assert "The tool clock answered: noon" in join(deltas)
        assert said.finishes == ["stop"]


def test_a_demanded_call_is_made_again_after_a_result() -> None:
    said, _ = answer(
        tools=(WEATHER,), results=(ToolResult("weather", "x"),), tool_choice=ToolChoice("required")
    )
    assert said.finishes == ["tool_calls"]


def test_a_custom_tool_gets_free_text() -> None:
    _, deltas = answer("shell", tools=(SHELL,))
    assert all(delta.custom for delta in deltas if delta.kind in (Kind.CALL, Kind.ARGUMENTS))
    assert join(deltas, Kind.ARGUMENTS) == "Practice text, no model wrote it."


def test_a_call_cut_by_the_ceiling_finishes_with_length() -> None:
    said, deltas = answer("weather", tools=(WEATHER,), max_tokens=4)
    assert (said.finishes, said.output_tokens) == (["length"], 4)
    with pytest.raises(json.JSONDecodeError):
        json.loads(join(deltas, Kind.ARGUMENTS))


def test_pad_sets_the_bytes_of_every_chunk() -> None:
    said, deltas = answer("@practice pad=1000,tokens=5@")
    assert [len(delta.text) for delta in deltas if delta.kind is Kind.TEXT] == [1000] * 5
    assert said.output_tokens == 1250


def test_utf8_says_characters_of_several_bytes() -> None:
    _, deltas = answer("@practice utf8,tokens=200@")
    assert {len(character.encode()) for character in join(deltas)} == {1, 2, 3, 4}


def test_reasoning_by_directive_works_for_any_model() -> None:
    said, _ = answer("@practice reasoning=5@")
    assert said.reasoning_tokens == 5
    assert answer("@practice reasoning=0@", model="practice-reasoner")[0].reasoning_tokens == 0


def test_finish_by_directive_replaces_the_reason() -> None:
    assert answer("@practice finish=content_filter@")[0].finishes == ["content_filter"]


def test_an_answer_is_long_enough_to_be_cut_where_asked() -> None:
    _, deltas = answer("@practice cut_after=300@")
    assert sum(delta.kind is Kind.TEXT for delta in deltas) == 301


def test_the_count_grows_while_the_answer_is_read() -> None:
    prompt = make_prompt("@practice tokens=10@")
    said = Answer(prompt, MODELS["practice-chat"], parse_directives(prompt.user_text))
    counts = [said.output_tokens for _ in said.deltas()]
    assert counts == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]
