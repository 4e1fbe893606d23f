"""httpx over the pool, as probes and evaluations use it, against a real inference engine."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from relay.upstreams.httpx_transport import PoolTransport
from relay.upstreams.pool import Pool
from tests.fakes.engine_process import HAS_WHEEL, NO_WHEEL, SLOTS, EngineProcess
from tests.fakes.noise_model import CONTEXT_TOKENS

pytestmark = pytest.mark.skipif(not HAS_WHEEL, reason=NO_WHEEL)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    process = EngineProcess(tmp_path_factory.mktemp("engine"))
    yield process
    process.close()


@pytest.fixture
async def client(engine: EngineProcess, pool: Pool):
    transport = PoolTransport(pool, allow_private=True)
    async with httpx.AsyncClient(base_url=engine.url, transport=transport, timeout=30) as client:
        yield client


def chat(text: str = "Hello", **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 20, **fields}


async def read_stream(response: httpx.Response) -> tuple[str, list[str]]:
    """The text and the datas of the events. The engine's JSON holds no line separators but its own."""
    datas = [line[6:] async for line in response.aiter_lines() if line.startswith("data: ")]
    choices = [choice for data in datas[:-1] for choice in json.loads(data)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices), datas


async def test_a_plain_answer_and_a_stream_say_the_same(client: httpx.AsyncClient) -> None:
    plain = await client.post("/chat/completions", json=chat())
    assert plain.status_code == 200
    said = plain.json()
    assert said["usage"]["completion_tokens"] == len(said["choices"][0]["message"]["content"]) == 20
    async with client.stream("POST", "/chat/completions", json=chat(stream=True)) as response:
        assert response.headers["content-type"] == "text/event-stream"
        text, datas = await read_stream(response)
    assert len(text) == 20
    assert (len(datas), datas[-1]) == (23, "[DONE]")


async def test_the_prefix_cache_is_seen(client: httpx.AsyncClient) -> None:
    found = []
    for question in ("one", "two"):
        answer = await client.post("/chat/completions", json=chat("a long story " * 50 + question))
        found.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert found[1] > 600


async def test_a_stream_that_is_left_stops_the_engine(
    client: httpx.AsyncClient, engine: EngineProcess, pool: Pool
) -> None:
    before = engine.counters()["written"]
    fields = chat(stream=True, max_tokens=CONTEXT_TOKENS - 100)
    async with client.stream("POST", "/chat/completions", json=fields) as response:
        async for line in response.aiter_lines():
            if '"content":"' in line:
                break
    await asyncio.to_thread(engine.wait_idle)
    assert engine.counters()["written"] - before < CONTEXT_TOKENS / 2
    assert pool.idle_connections == 0


async def test_calls_side_by_side(client: httpx.AsyncClient, pool: Pool) -> None:
    async def ask(number: int) -> int:
        fields = chat(f"{number} times", stream=True, max_tokens=number)
        async with client.stream("POST", "/chat/completions", json=fields) as response:
            text, _ = await read_stream(response)
        return len(text)

    counts = range(10, 10 + 3 * SLOTS)
    assert await asyncio.gather(*map(ask, counts)) == list(counts)
    assert pool.idle_connections == pool.open_connections


async def test_a_refusal_is_an_answer(client: httpx.AsyncClient) -> None:
    answer = await client.post("/chat/completions", json=chat("x" * (CONTEXT_TOKENS + 1)))
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "exceed_context_size_error"
    with pytest.raises(httpx.HTTPStatusError):
        answer.raise_for_status()


async def test_calls_one_after_the_other_meet_no_closed_connection(client: httpx.AsyncClient) -> None:
    """The engine closes a connection behind a stream without a word, and behind the hundredth plain answer."""
    for _ in range(105):
        assert (await client.get("/models")).status_code == 200
    for _ in range(20):
        async with client.stream("POST", "/chat/completions", json=chat(stream=True, max_tokens=1)) as answer:
            assert len((await read_stream(answer))[0]) == 1
