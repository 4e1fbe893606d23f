"""A client that reads slowly: nothing piles up in the relay, the upstream has to wait, and nothing is lost."""

import os
import threading
from pathlib import Path

from tests.fakes.http_server import Peer, chunk, in_thread
from tests.wire.world import World, eventually

TOTAL_BYTES = 200 * 1024 * 1024
MAY_GROW_BYTES = 5 * 1024 * 1024
TEXT = "x" * 8_000
EVENT = (
    b'data: {"id":"a","model":"up","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    % TEXT.encode()
)
END = (
    b'data: {"id":"a","model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"a","model":"up","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}\n\n'
    b"data: [DONE]\n\n"
)
EVENTS = TOTAL_BYTES // len(EVENT)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Upstream:
    """Sends the long answer, and counts what the socket has taken."""

    def __init__(self) -> None:
        self.sent = 0

    async def play(self, peer: Peer) -> None:
        await peer.request()
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        block = chunk(EVENT * 8)
        for _ in range(EVENTS // 8):
            await peer.send(block)
            self.sent += len(block)
        await peer.send(chunk(END), chunk(b""))
        await peer.gone()


def test_a_slow_reader_of_a_long_stream_costs_no_memory(world: World) -> None:
    upstream = Upstream()
    with in_thread(upstream.play) as server:
        tenant = world.tenant(f"{server.url}/v1", model={"hold_output_tokens": 100_000})
        before = resident_bytes(world.relay.pid)
        with tenant.start(receive_buffer=65_536) as client:
            answer = client.read_head()
            received = client.read_piece().count(b'"content":"')
            # The client stops here: the upstream comes to a halt far before its end.
            still = threading.Event()
            last = -1
            while upstream.sent != last:
                last = upstream.sent
                still.wait(0.3)
            assert 0 < last < 16 * 1024 * 1024
            assert resident_bytes(world.relay.pid) - before < MAY_GROW_BYTES
            assert tenant.use()[2] == 1
            most = 0
            while piece := client.read_piece():
                received += piece.count(b'"content":"')
                most = max(most, resident_bytes(world.relay.pid))
        assert received == EVENTS // 8 * 8
        assert most - before < MAY_GROW_BYTES
    record = tenant.record(answer)
    assert (record.status, record.output_tokens) == ("ok", 7)
    assert record.stages["client_write_wait"] > 300
    eventually(lambda: tenant.use()[1:] == (0, 0))


def test_a_slow_reader_does_not_hold_up_others(world: World) -> None:
    upstream = Upstream()
    with in_thread(upstream.play) as server:
        tenant = world.tenant(f"{server.url}/v1")
        with tenant.start(receive_buffer=4096) as slow:
            slow.read_head()
            with tenant.start() as quick:
                quick.read_head()
                for _ in range(500):
                    assert TEXT.encode() in quick.read_event()
    eventually(lambda: tenant.use()[1:] == (0, 0))
