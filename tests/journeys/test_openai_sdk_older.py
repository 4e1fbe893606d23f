"""Text completions and embeddings with the official OpenAI SDK, sync and async, as its users write it."""

import asyncio
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import openai
import pytest
from openai.types import Completion, CreateEmbeddingResponse

from tests.fakes.product import Product
from tests.journeys.conftest import OPERATOR_KEY, PRACTICE_KEY


@pytest.fixture
def client(product: Product) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{product.url}/v1", api_key=PRACTICE_KEY, max_retries=0, timeout=30
    ) as client:
        yield client


def record_of(product: Product, response: Any) -> dict[str, Any]:
    return product.record(response.headers["x-call-id"], key=OPERATOR_KEY)


def test_a_completion(product: Product, client: openai.OpenAI) -> None:
    raw = client.completions.with_raw_response.create(
        model="practice-fast", prompt=["Once", "Twice"], max_tokens=6
    )
    answer = raw.parse()
    assert isinstance(answer, Completion)
    assert answer.model == "practice-fast"
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.text and choice.finish_reason == "length" for choice in answer.choices)
    assert answer.usage is not None
    record = record_of(product, raw)
    assert (record["status"], record["endpoint"], record["client"]) == (
        "ok",
        "/v1/completions",
        "openai-python",
    )
    assert record["input_tokens"] == answer.usage.prompt_tokens
    assert record["output_tokens"] == answer.usage.completion_tokens == 12


def test_a_completion_as_a_stream(product: Product, client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="practice-chat",
        prompt="Once",
        max_tokens=6,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    plain = client.completions.create(model="practice-chat", prompt="Once", max_tokens=6)
    assert text == plain.choices[0].text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6
    silent = list(client.completions.create(model="practice-chat", prompt="Once", stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in silent)
    record = record_of(product, stream.response)
    assert (record["stream"], record["end_reason"], record["usage_source"]) == (True, "length", "reported")


def test_completions_with_all_that_the_older_form_knows(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="practice-fast",
        prompt="Once",
        suffix=" end",
        echo=True,
        logprobs=2,
        best_of=3,
        n=2,
        max_tokens=4,
    )
    assert len(answer.choices) == 2
    assert all(choice.text.startswith("Once") for choice in answer.choices)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or []) == answer.choices[0].text
    assert client.completions.create(model="practice-fast", prompt=[[1, 2], [3]]).usage.prompt_tokens == 3


def test_embeddings_are_decoded_by_the_sdk(product: Product, client: openai.OpenAI) -> None:
    raw = client.embeddings.with_raw_response.create(model="practice-embedding", input=["one", "two"])
    answer = raw.parse()
    assert isinstance(answer, CreateEmbeddingResponse)
    assert answer.model == "practice-embedding"
    first, second = (item.embedding for item in answer.data)
    assert len(first) == len(second) == 1536
    assert first != second
    assert math.hypot(*first) == pytest.approx(1, abs=1e-6)
    numbers = client.embeddings.create(model="practice-embedding", input="one", encoding_format="float")
    assert numbers.data[0].embedding == pytest.approx(first, abs=1e-7)
    record = record_of(product, raw)
    assert (record["status"], record["endpoint"], record["stream"]) == ("ok", "/v1/embeddings", False)
    assert record["input_tokens"] == answer.usage.prompt_tokens
    assert record["output_tokens"] == 0
    assert Decimal(record["amount"]) == 0


def test_embeddings_of_tokens_and_fewer_dimensions(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="practice-embedding", input=[[1, 2], [3]], dimensions=64)
    assert [len(item.embedding) for item in answer.data] == [64, 64]
    assert answer.usage.prompt_tokens == 3


def test_refusals_are_the_errors_the_sdk_knows(product: Product, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="practice-embedding") as caught:
        client.completions.create(model="practice-embedding", prompt="Once")
    assert caught.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="practice-chat"):
        client.embeddings.create(model="practice-chat", input="Once")
    with pytest.raises(openai.BadRequestError) as unusable:
        client.embeddings.create(model="practice-embedding", input=[])
    assert unusable.value.param == "input"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="nothing", input="Once")
    with pytest.raises(openai.InternalServerError):
        client.completions.create(model="practice-fast", prompt="@practice status=500@")
    with pytest.raises(openai.APIError):
        list(client.completions.create(model="practice-fast", prompt="@practice cut_after=3@", stream=True))
    with (
        openai.OpenAI(base_url=f"{product.url}/v1", api_key="sk-yz-wrong-000000000000000000000") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.embeddings.create(model="practice-embedding", input="Once")


async def test_the_async_client_asks_for_many_at_once(product: Product) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{product.url}/v1", api_key=PRACTICE_KEY, max_retries=0, timeout=30
    ) as client:

        async def write(number: int) -> str:
            stream = await client.completions.create(
                model="practice-fast", prompt=f"Number {number}", max_tokens=8, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in stream])

        async def embed(number: int) -> list[float]:
            answer = await client.embeddings.create(model="practice-embedding", input=f"Number {number}")
            return answer.data[0].embedding

        texts = await asyncio.gather(*(write(number) for number in range(10)))
        vectors = await asyncio.gather(*(embed(number) for number in range(10)))
        plain = await client.completions.create(model="practice-fast", prompt="Number 0", max_tokens=8)
    assert texts[0] == plain.choices[0].text
    assert len({tuple(vector) for vector in vectors}) == 10
