"""A real inference engine as the upstream: what its cache saves in time and money, and how its calls end."""

import random
import string
from collections.abc import Iterator
from functools import partial
from statistics import median

import pytest

from billing.models import UsageRecord
from tests.fakes.engine_process import HAS_WHEEL, NO_WHEEL, SLOTS, EngineProcess
from tests.fakes.noise_model import CONTEXT_TOKENS, END_TOKEN
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import Tenant, World, at_once, eventually

pytestmark = pytest.mark.skipif(not HAS_WHEEL, reason=NO_WHEEL)

# Uncached input, cached input and output at the default price: 2, 0.2 and 10 per million, in nano-units a token.
INPUT, CACHED, OUTPUT = 2_000, 200, 10_000
# Takes the engine most of a second to read, and a hundredth of one when it knows it.
LONG = 3_000
ASKS = {"include_usage": True}
FORMS = {"stream": True, "plain": None}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    process = EngineProcess(tmp_path_factory.mktemp("engine"))
    yield process
    process.close()


@pytest.fixture
def tenant(world: World, engine: EngineProcess) -> Tenant:
    return world.tenant(engine.url, upstream_model="noise")


def story(seed: int, length: int = LONG) -> str:
    """A prompt that no other begins like: `length` letters, which are as many tokens."""
    return "".join(random.Random(seed).choices(string.ascii_lowercase, k=length))


def reported(answer: Answer) -> tuple[int, int, int]:
    """Prompt, cached and written tokens in the engine's own report, which says them twice."""
    last = answer.chunks[-1] if answer.events else answer.json
    usage, timings = last["usage"], last["timings"]
    found = (
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["completion_tokens"],
    )
    assert found == (timings["cache_n"] + timings["prompt_n"], timings["cache_n"], timings["predicted_n"])
    return found


def recorded(record: UsageRecord) -> tuple[int, int, int]:
    return record.input_tokens, record.cached_input_tokens, record.output_tokens


def first_token_wait(record: UsageRecord) -> float:
    """Milliseconds from the request's last byte to the answer's first token."""
    return record.stages.get("upstream_wait", 0) + record.stages.get("prefill", 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_warm_prefix_is_cheaper_and_sooner(tenant: Tenant, engine: EngineProcess, form: str) -> None:
    before = engine.counters()
    colds: list[UsageRecord] = []
    warms: list[UsageRecord] = []
    asks = ASKS if form == "stream" else None
    for seed in range(3):
        prompt = story(seed + 100 * len(form))
        for records, question in ((colds, "What is it about?"), (warms, "Who wrote it?")):
            answer = tenant.stream(
                prompt + question, stream=FORMS[form], stream_options=asks, max_tokens=4, temperature=0
            )
            record = tenant.record(answer)
            assert recorded(record) == reported(answer)
            assert record.output_tokens == len(answer.text) == 4
            records.append(record)
    for cold, warm in zip(colds, warms, strict=True):
        assert cold.input_tokens > LONG
        # All prompts share the template's first words.
        assert cold.cached_input_tokens < 20
        assert warm.cached_input_tokens >= LONG
        for record in (cold, warm):
            assert record.usage_source == "reported"
            assert record.uncached_input_tokens == record.input_tokens - record.cached_input_tokens
            assert record.amount_nano == (
                INPUT * record.uncached_input_tokens
                + CACHED * record.cached_input_tokens
                + OUTPUT * record.output_tokens
            )
        assert warm.amount_nano < cold.amount_nano / 4
    cold_ms, warm_ms = (median(map(first_token_wait, records)) for records in (colds, warms))
    assert warm_ms < cold_ms / 4
    # The engine's own sums, which no answer passes on.
    records = tenant.check_books(6)
    after = engine.counters()
    assert {name: after[name] - before[name] for name in after} == {
        "prompt": sum(record.uncached_input_tokens for record in records),
        "cached": sum(record.cached_input_tokens for record in records),
        "written": sum(record.output_tokens for record in records),
    }


def test_the_wait_for_the_first_token_is_the_time_in_which_the_prompt_is_read(tenant: Tenant) -> None:
    """The engine sends its headers at once, then comments while it reads: neither is a token."""
    answer = tenant.stream(story(7, 4_000), stream_options=ASKS, max_tokens=2)
    record = tenant.record(answer)
    reading_ms = answer.chunks[-1]["timings"]["prompt_ms"]
    assert record.stages["prefill"] > reading_ms * 0.8
    assert record.stages["upstream_wait"] < reading_ms / 2
    assert record.ttft_ms is not None
    assert record.ttft_ms > reading_ms * 0.8


@pytest.mark.parametrize("form", FORMS)
def test_usage_is_recorded_where_the_client_did_not_ask_for_it(
    tenant: Tenant, engine: EngineProcess, form: str
) -> None:
    before = engine.counters()
    answer = tenant.stream("Hello", stream=FORMS[form], max_tokens=30)
    record = tenant.record(answer)
    after = engine.counters()
    assert record.usage_source == "reported"
    assert record.output_tokens == after["written"] - before["written"] == len(answer.text) == 30
    assert record.uncached_input_tokens == after["prompt"] - before["prompt"]
    if form == "stream":
        assert not [chunk for chunk in answer.chunks if chunk.get("usage")]


ENDINGS = {
    "length": ({"max_tokens": 12}, 12),
    "stop": ({"max_tokens": 12, "logit_bias": {str(END_TOKEN): 100}}, 0),
    "stop string": ({"max_tokens": 400, "stop": list(string.ascii_lowercase)}, None),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_engine_says_why_it_ended(tenant: Tenant, ending: str, form: str) -> None:
    fields, characters = ENDINGS[ending]
    asks = ASKS if form == "stream" else None
    answer = tenant.stream("Hello", stream=FORMS[form], stream_options=asks, **fields)
    record = tenant.record(answer)
    said = [c["choices"][0] for c in answer.chunks if c["choices"]][-1] if asks else answer.json["choices"][0]
    assert said["finish_reason"] == record.end_reason == ending.partition(" ")[0]
    assert (record.status, record.http_status) == ("ok", 200)
    assert recorded(record) == reported(answer)
    if characters is None:
        assert not set(answer.text) & set(string.ascii_lowercase)
        assert record.output_tokens == len(answer.text) + 1 < 400
    else:
        assert len(answer.text) == characters
    if form == "stream":
        assert answer.is_done
    tenant.check_books(1)


def test_the_answer_is_what_the_engine_says_without_us(tenant: Tenant, engine: EngineProcess) -> None:
    def without_names(answer: Answer) -> list[dict[str, object]]:
        named = {"id", "created", "model", "timings"}
        return [{key: value for key, value in chunk.items() if key not in named} for chunk in answer.chunks]

    body = tenant.body("Hello", stream=True, max_tokens=30)
    tenant.send(body)
    through = tenant.send(body)
    with RawClient(engine.port) as client:
        client.request("POST", "/v1/chat/completions", {"content-type": "application/json"}, body)
        direct = client.read_answer()
    assert through.text == direct.text
    assert without_names(through) == without_names(direct)


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_client_that_leaves_stops_the_engine(tenant: Tenant, engine: EngineProcess, way: str) -> None:
    before = engine.counters()["written"]
    client = tenant.start("Tell me everything", max_tokens=CONTEXT_TOKENS - 100)
    client.read_head()
    for _ in range(10):
        client.read_event()
    assert engine.busy() == 1
    getattr(client, way)()
    # To write it all takes the engine several seconds.
    engine.wait_idle()
    assert engine.counters()["written"] - before < CONTEXT_TOKENS / 2
    (record,) = tenant.check_books(1)
    assert record.status == "client_gone"
    assert 0 < record.output_tokens < CONTEXT_TOKENS / 2
    assert tenant.ask(max_tokens=2).status == 200


def test_a_client_that_leaves_while_its_prompt_is_read_pays_nothing(
    tenant: Tenant, engine: EngineProcess
) -> None:
    with tenant.start(story(8, 5_000), max_tokens=3_000):
        eventually(engine.busy)
    (record,) = tenant.check_books(1)
    assert (record.status, record.amount_nano, record.output_tokens) == ("client_gone", 0, 0)
    # It reads on until it has something to write, and then writes it to nobody.
    written = engine.counters()["written"]
    engine.wait_idle(within_s=30)
    assert engine.counters()["written"] - written < 1_000


def test_more_streams_than_slots_all_come_to_their_ends(tenant: Tenant, engine: EngineProcess) -> None:
    calls = {
        str(number): partial(
            tenant.stream,
            story(1_000 + number, 50 * number + 1),
            stream_options=ASKS,
            max_tokens=100 + number,
        )
        for number in range(4 * SLOTS)
    }
    answers = at_once(calls, workers=len(calls))
    for name, answer in answers.items():
        assert not isinstance(answer, BaseException), answer
        assert (answer.status, answer.is_done) == (200, True)
        assert len(answer.text) == 100 + int(name)
    records = {str(record.id): record for record in tenant.check_books(len(calls))}
    for answer in answers.values():
        assert recorded(records[answer.call_id]) == reported(answer)
    assert engine.busy() == 0


@pytest.mark.parametrize("form", FORMS)
def test_calls_one_after_the_other_meet_no_closed_connection(tenant: Tenant, form: str) -> None:
    """The engine closes a connection behind a stream without a word, and behind the hundredth plain answer."""
    for _ in range(105):
        answer = tenant.stream(stream=FORMS[form], max_tokens=1)
        assert (answer.status, len(answer.text)) == (200, 1)
    for record in tenant.check_books(105):
        assert [attempt["result"] for attempt in record.attempts] == ["ok"]


REFUSED = {
    "context too long": {"content": "x" * (CONTEXT_TOKENS + 1)},
    "a field of the wrong type": {"temperature": "hot"},
    "a schema that is none": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "bogus"}}}
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("refused", REFUSED)
def test_what_the_engine_refuses_is_an_error_of_openais_form(tenant: Tenant, refused: str, form: str) -> None:
    fields = dict(REFUSED[refused])
    answer = tenant.stream(str(fields.pop("content", "Hello")), stream=FORMS[form], **fields)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["type"] == "invalid_request_error"
    is_long = refused == "context too long"
    assert answer.error["code"] == ("context_length_exceeded" if is_long else None)
    if is_long:
        assert str(CONTEXT_TOKENS) in answer.error["message"]
    (record,) = tenant.check_books(1)
    assert (record.status, record.http_status, record.amount_nano) == ("client_error", 400, 0)
    assert record.error_kind == "upstream_rejected"
