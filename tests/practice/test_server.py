"""The provider over real sockets: HTTP as it should be, and clients that are not."""

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path

import openai
import pytest

from practice import server as server_module
from practice.server import MAX_BODY_BYTES, MAX_HEADER_BYTES

ROOM = Path(server_module.__file__).parent.parent


async def test_a_plain_answer_is_json_with_a_length(practice) -> None:
    answer = await practice.ask()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert "connection" not in answer.headers
    assert "Practice text" in answer.json()["choices"][0]["message"]["content"]


async def test_a_stream_ends_with_done_and_the_connection_goes_on(practice) -> None:
    client = await practice.connect()
    for _ in range(3):
        client.post("@practice tokens=2@", stream=True)
        answer = await client.read_answer()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.body.startswith(b'data: {"id":"chatcmpl-practice')
        assert answer.body.endswith(b"}\n\ndata: [DONE]\n\n")
        assert answer.body.count(b"\n\n") == 5
    assert practice.server.provider.counters.connections == 1


async def test_requests_that_come_at_once_are_answered_in_order(practice) -> None:
    client = await practice.connect()
    for number in range(40):
        client.post(f"@practice tokens={number + 1}@")
    for number in range(40):
        assert (await client.read_answer()).json()["usage"]["completion_tokens"] == number + 1


async def test_a_request_may_come_byte_by_byte(practice) -> None:
    client = await practice.connect()
    body = b'{"model":"practice-fast","messages":[{"role":"user","content":"Hi"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: %d\r\n\r\n"
    for byte in head % len(body) + body:
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert (await client.read_answer()).status == 200


async def test_a_request_may_come_in_chunks_and_wait_for_leave(practice) -> None:
    client = await practice.connect()
    client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer x\r\nexpect: 100-continue\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )
    assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(
        b'1\r\n{\r\n44\r\n"model":"practice-fast","messages":[{"role":"user","content":"Hi"}]}\r\n0\r\n\r\n'
    )
    assert (await client.read_answer()).status == 200


async def test_a_client_that_asks_for_the_end_gets_it(practice) -> None:
    for request in (b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n", b"GET /healthz HTTP/1.0\r\n\r\n"):
        client = await practice.connect()
        client.send(request)
        answer = await client.read_all()
        assert b"connection: close\r\n" in answer
        assert answer.endswith(b'{"ok":true}')


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"this is no request\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (MAX_HEADER_BYTES + 10) + b"\r\n\r\n", b"431"),
        (b"GET /" + b"y" * (MAX_HEADER_BYTES + 10) + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", b"400"),
        (b"CONNECT other:443 HTTP/1.1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_good_request_is_refused_and_the_connection_closed(
    practice, sent: bytes, status: bytes
) -> None:
    client = await practice.connect()
    client.send(sent)
    answer = await client.read_all()
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


async def test_a_body_over_the_bound_is_refused_while_it_is_sent(practice) -> None:
    client = await practice.connect()
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (MAX_BODY_BYTES * 2))
    for _ in range(MAX_BODY_BYTES // 2**20 + 1):
        client.send(b"x" * 2**20)
        await client.writer.drain()
    assert (await client.read_until(b"\r\n")).startswith(b"HTTP/1.1 413")


async def test_what_was_asked_before_a_bad_request_is_answered_first(practice) -> None:
    client = await practice.connect()
    client.post("@practice tokens=3,ttft_ms=20@")
    client.send(b"rubbish\r\n\r\n")
    assert (await client.read_answer()).status == 200
    assert (await client.read_all()).startswith(b"HTTP/1.1 400")


async def test_a_client_that_goes_away_stops_the_work_and_is_counted(practice) -> None:
    client = await practice.connect()
    client.post("@practice tokens=100000,gap_ms=5,ttft_ms=0@", stream=True)
    await client.read_until(b'"content":"Prac"')
    await practice.stats_reach(requests=1, open=1, hung_up=0)
    await client.close()
    await practice.stats_reach(open=0, hung_up=1, completed=0, connections_open=0)


async def test_a_client_that_leaves_before_the_first_byte_is_counted_too(practice) -> None:
    client = await practice.connect()
    client.post("@practice headers_delay_ms=600000@", stream=True)
    await practice.stats_reach(open=1)
    await client.close()
    await practice.stats_reach(open=0, hung_up=1, completed=0)


async def test_a_client_that_resets_is_counted_too(practice) -> None:
    client = await practice.connect()
    client.post("@practice tokens=100000,gap_ms=5,ttft_ms=0@", stream=True)
    await client.read_until(b'"content":"Prac"')
    client.writer.transport.abort()
    await practice.stats_reach(open=0, hung_up=1)


async def test_a_client_that_closes_its_own_half_has_gone(practice) -> None:
    client = await practice.connect()
    client.post("@practice ttft_ms=600000@", stream=True)
    await practice.stats_reach(open=1)
    client.writer.write_eof()
    await practice.stats_reach(open=0, hung_up=1)


async def test_answers_played_to_their_end_are_counted_cuts_included(practice) -> None:
    await practice.ask()
    await practice.ask(stream=True)
    await practice.ask_raw("@practice cut_after=1@", stream=True)
    await practice.stats_reach(requests=3, completed=3, open=0, hung_up=0)


async def test_counters_are_told_and_do_not_count_themselves(practice) -> None:
    await practice.ask()
    client = await practice.connect()
    client.send(b"GET /practice/stats HTTP/1.1\r\n\r\n" * 2)
    for _ in range(2):
        assert (await client.read_answer()).json() == {
            "requests": 1,
            "open": 0,
            "hung_up": 0,
            "completed": 1,
            "connections": 2,
            "connections_open": 2,
        }


async def test_a_client_that_does_not_read_holds_up_its_own_stream_only(practice) -> None:
    slow = await practice.connect()
    slow.writer.transport.pause_reading()
    slow.post("@practice tokens=100000,pad=50000@", stream=True)
    await practice.stats_reach(open=1)
    for _ in range(20):
        assert (await practice.ask()).status == 200
    connection = next(one for one in practice.server.connections if one.is_busy)
    assert connection._transport.get_write_buffer_size() < 2**20
    slow.writer.transport.resume_reading()
    for _ in range(5):
        await slow.reader.readexactly(2**20)


async def test_many_streams_run_at_once(practice) -> None:
    async def run() -> bytes:
        return (await practice.ask("@practice tokens=5,ttft_ms=100,gap_ms=10@", stream=True)).body

    started = asyncio.get_running_loop().time()
    bodies = await asyncio.gather(*(run() for _ in range(200)))
    assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)
    # One after the other they would take 28 s.
    assert asyncio.get_running_loop().time() - started < 4
    await practice.stats_reach(completed=200, open=0)


async def test_an_idle_client_is_dropped_and_a_waiting_one_is_not(practice, monkeypatch) -> None:
    monkeypatch.setattr(server_module, "IDLE_S", 0.05)
    waiting = await practice.connect()
    waiting.post("@practice ttft_ms=300@")
    idle = await practice.connect()
    assert await idle.read_all() == b""
    assert (await waiting.read_answer()).status == 200


async def test_the_official_client_streams_calls_tools_and_lists_models(practice) -> None:
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{practice.port}/v1", api_key="any") as client:
        assert "practice-chat" in [model.id async for model in client.models.list()]
        stream = await client.chat.completions.create(
            model="practice-reasoner",
            messages=[{"role": "user", "content": "Hello @practice ttft_ms=0,gap_ms=0@"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == 16
        assert "Practice text" in "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        answer = await client.chat.completions.create(
            model="practice-fast",
            messages=[{"role": "user", "content": "weather?"}],
            tools=[{"type": "function", "function": {"name": "weather", "parameters": schema}}],
            tool_choice="required",
        )
        assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments) == {"city": "practice"}
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])


async def test_stopping_lets_running_answers_end_and_closes_idle_clients(practice) -> None:
    running = await practice.connect()
    running.post("@practice tokens=3,ttft_ms=50@", stream=True)
    idle = await practice.connect()
    await practice.stats_reach(open=1, connections_open=2)
    stop = asyncio.create_task(practice.server.stop())
    assert await idle.read_all() == b""
    assert (await running.read_all()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    await stop
    with pytest.raises(ConnectionRefusedError):
        await practice.connect()


async def test_stopping_drops_what_does_not_end(practice) -> None:
    endless = await practice.connect()
    endless.post("@practice ttft_ms=600000@")
    await practice.stats_reach(open=1)
    await practice.server.stop(grace_s=0.01)
    with pytest.raises(ConnectionResetError):
        await endless.read_all()


# The program


async def start_program(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "practice", *arguments, cwd=ROOM, stdout=-1, stderr=-1
    )


async def test_the_program_says_where_it_listens_and_ends_on_sigterm() -> None:
    program = await start_program("--port", "0")
    async with asyncio.timeout(10):
        line = (await program.stdout.readline()).decode()
        assert line.startswith("listening: http://127.0.0.1:")
        port = int(line.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"
        program.send_signal(signal.SIGTERM)
        _, said = await program.communicate()
        writer.close()
    assert (program.returncode, said) == (0, b"")


async def test_the_program_says_when_its_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        program = await start_program("--port", str(taken.getsockname()[1]))
        async with asyncio.timeout(10):
            _, said = await program.communicate()
    assert program.returncode == 1
    assert said.startswith(b"practice: cannot listen on 127.0.0.1:")
