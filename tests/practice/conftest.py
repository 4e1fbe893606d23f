"""A provider on a socket, and a client that shows every byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from practice.server import Server

LIMIT_S = 5


@dataclass
class Client:
    """One raw connection. Reads are bounded in time, so a hang is a failure and not a stuck run."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, text: str = "Hello", *, model: str = "practice-fast", **fields: object) -> None:
        """A chat completions request."""
        body = json.dumps(
            {"model": model, "messages": [{"role": "user", "content": text}], **fields}
        ).encode()
        self.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: practice\r\nauthorization: Bearer any\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )

    async def read_all(self) -> bytes:
        """Everything until the server closes. Raises ConnectionResetError when it resets."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read(-1)

    async def read_until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readuntil(mark)

    async def read_answer(self) -> "Received":
        """One whole answer with a content-length or in chunks; the connection stays usable."""
        head = (await self.read_until(b"\r\n\r\n")).decode()
        async with asyncio.timeout(LIMIT_S):
            headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            received = Received(int(head[9:12]), headers)
            if headers.get("transfer-encoding") == "chunked":
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    received.pieces.append(await self.reader.readexactly(size))
                    await self.reader.readexactly(2)
                await self.reader.readexactly(2)
            else:
                received.pieces.append(await self.reader.readexactly(int(headers["content-length"])))
        return received

    async def close(self) -> None:
        self.writer.close()


@dataclass
class Received:
    """An answer: status, headers, and the body in the chunks it came in."""

    status: int
    headers: dict[str, str]
    pieces: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def json(self) -> dict[str, object]:
        return json.loads(self.body)


@dataclass
class Practice:
    """A running provider."""

    server: Server
    port: int
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**24))
        self.clients.append(client)
        return client

    async def ask(self, text: str = "Hello", **fields: object) -> Received:
        """One answer over a connection of its own."""
        client = await self.connect()
        client.post(text, **fields)
        return await client.read_answer()

    async def ask_raw(self, text: str = "Hello", **fields: object) -> bytes:
        """All bytes of an answer that ends with its connection."""
        client = await self.connect()
        client.post(text, **fields)
        return await client.read_all()

    async def stats_reach(self, **wanted: int) -> None:
        """Wait until the counters are as named. Fails when they are not within the limit."""
        counters = self.server.provider.counters
        async with asyncio.timeout(LIMIT_S):
            while any(getattr(counters, name) != value for name, value in wanted.items()):  # noqa: ASYNC110 -- plain counters
                await asyncio.sleep(0)


@pytest.fixture
async def practice() -> AsyncIterator[Practice]:
    server = Server()
    address = await server.start("127.0.0.1", 0)
    running = Practice(server, int(address.rsplit(":", 1)[1]))
    yield running
    for client in running.clients:
        await client.close()
    await server.stop(grace_s=0)
