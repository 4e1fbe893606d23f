"""The official OpenAI SDK against the running product, sync and async, as its users write it."""

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.fakes.product import Product
from tests.journeys.conftest import OPERATOR_KEY, PRACTICE_KEY

USER = [{"role": "user", "content": "Say something."}]
WEATHER: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather at a place.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}},
                "required": ["place"],
            },
        },
    }
]


@pytest.fixture
def client(product: Product) -> Any:
    with openai.OpenAI(
        base_url=f"{product.url}/v1", api_key=PRACTICE_KEY, max_retries=0, timeout=30
    ) as client:
        yield client


def record_of(product: Product, response: Any) -> dict[str, Any]:
    return product.record(response.headers["x-call-id"], key=OPERATOR_KEY)


def test_a_plain_answer(product: Product, client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="practice-fast", messages=USER)
    answer = raw.parse()
    assert isinstance(answer, ChatCompletion)
    assert answer.model == "practice-fast"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    record = record_of(product, raw)
    assert record["status"] == "ok"
    assert record["input_tokens"] == answer.usage.prompt_tokens
    assert record["output_tokens"] == answer.usage.completion_tokens
    assert record["client"] == "openai-python"


def test_a_stream_without_usage_shows_none_and_the_record_has_it(
    product: Product, client: openai.OpenAI
) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="practice-fast", messages=USER, stream=True
    ) as response:
        lines = list(response.iter_lines())
    assert lines[-2] == "data: [DONE]" or "data: [DONE]" in lines
    assert not any('"usage":{' in line for line in lines)
    record = record_of(product, response)
    assert record["usage_source"] == "reported"
    assert record["output_tokens"] > 0
    timing = record["timing"]
    assert timing["ttfb_ms"] <= timing["ttft_ms"] + 1
    assert abs(sum(timing["stages"].values()) - timing["total_ms"]) < 1


def test_a_stream_with_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="practice-chat",
        messages=USER,
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=8,
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_tools_make_a_round_trip(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "What is the weather in Paris? Call get_weather."}]
    first = client.chat.completions.create(
        model="practice-fast", messages=asked, tools=WEATHER, tool_choice="required"
    )
    call = (first.choices[0].message.tool_calls or [])[0]
    assert call.type == "function"
    assert call.function.name == "get_weather"
    asked += [
        first.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"},
    ]
    second = client.chat.completions.create(model="practice-fast", messages=asked, tools=WEATHER)
    assert second.choices[0].message.content


def test_tools_stream_their_arguments(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="practice-fast", messages=USER, tools=WEATHER, tool_choice="required", stream=True
    )
    arguments = ""
    for chunk in stream:
        for call in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            arguments += (call.function and call.function.arguments) or ""
    assert arguments.startswith("{")
    assert arguments.endswith("}")


@pytest.mark.parametrize(
    ("key", "model", "error"),
    [
        ("sk-yz-wrong-0000000000000000000000000000", "practice-fast", openai.AuthenticationError),
        (PRACTICE_KEY, "no-such-model", openai.NotFoundError),
    ],
)
def test_refusals_are_the_errors_the_sdk_knows(
    product: Product, key: str, model: str, error: type[Exception]
) -> None:
    with (
        openai.OpenAI(base_url=f"{product.url}/v1", api_key=key, max_retries=2) as client,
        pytest.raises(error),
    ):
        client.chat.completions.create(model=model, messages=USER)


@pytest.mark.parametrize(
    ("directive", "error"),
    [
        ("status=429,retry_after=2", openai.APIStatusError),
        ("status=500", openai.InternalServerError),
        ("status=400", openai.BadRequestError),
        ("status=401", openai.InternalServerError),
        ("html=1", openai.InternalServerError),
    ],
)
def test_an_upstream_that_fails_is_an_error_that_the_sdk_knows(
    client: openai.OpenAI, directive: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.chat.completions.create(
            model="practice-fast", messages=[{"role": "user", "content": f"@practice {directive}@"}]
        )


def test_a_cut_stream_raises_while_it_is_read(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="practice-fast",
        messages=[{"role": "user", "content": "@practice tokens=20,cut_after=3@"}],
        stream=True,
    )
    with pytest.raises(openai.APIError):
        list(stream)


def test_the_sdk_gives_up_after_its_timeout_and_the_call_is_recorded(product: Product) -> None:
    with (
        openai.OpenAI(
            base_url=f"{product.url}/v1", api_key=PRACTICE_KEY, max_retries=0, timeout=0.5
        ) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        client.chat.completions.create(
            model="practice-fast",
            messages=[{"role": "user", "content": "@practice headers_delay_ms=20000@"}],
            extra_headers={"x-task-id": "sdk-timeout"},
        )
    for _ in range(100):
        _, found = product.ask("/api/v1/calls/?task_id=sdk-timeout", key=OPERATOR_KEY)
        if found["results"]:
            break
    assert [call["status"] for call in found["results"]] == ["client_gone"]
    assert found["results"][0]["amount"] in ("0", "0.00")


def test_models_are_listed_and_shown(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert "practice-chat" in names
    assert client.models.retrieve("practice-chat").id == "practice-chat"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


async def test_the_async_client_streams_many_at_once(product: Product) -> None:
    import asyncio

    async with openai.AsyncOpenAI(
        base_url=f"{product.url}/v1", api_key=PRACTICE_KEY, max_retries=0
    ) as client:

        async def one(number: int) -> str:
            stream = await client.chat.completions.create(
                model="practice-fast", messages=[{"role": "user", "content": f"Number {number}"}], stream=True
            )
            return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

        texts = await asyncio.gather(*(one(number) for number in range(20)))
        assert all(texts)
        plain = await client.chat.completions.create(model="practice-fast", messages=USER)
        assert plain.choices[0].message.content
