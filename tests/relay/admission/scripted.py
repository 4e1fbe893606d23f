"""A server that speaks the store's protocol and misbehaves on request."""

import asyncio
from collections.abc import Callable
from typing import Self

import hiredis


class _Connection(asyncio.Protocol):
    def __init__(self, server: "ScriptedServer") -> None:
        self.server = server
        self.reader = hiredis.Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.server.connections.append(self)
        self.server.changed.set()

    def data_received(self, data: bytes) -> None:
        self.server.received.append(data)
        self.reader.feed(data)
        while command := self.reader.gets():
            self.server.commands.append(command)
            self.server.take(self, command)
        self.server.changed.set()


class ScriptedServer:
    """Answers PING and ECHO, and what `answers` says for other commands; keeps quiet while `is_silent`."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.answers: dict[bytes, bytes] = {}
        self.is_silent = False
        self.split_at = 0  # hand out answers in two pieces
        self.received: list[bytes] = []
        self.commands: list[list[bytes]] = []
        self.connections: list[_Connection] = []
        self.changed = asyncio.Event()
        self._held_back: list[tuple[_Connection, bytes]] = []

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def take(self, connection: _Connection, command: list[bytes]) -> None:
        answer = self.answers.get(command[0])
        if answer is None:
            answer = (
                b"+PONG\r\n" if command[0] == b"PING" else b"$%d\r\n%b\r\n" % (len(command[-1]), command[-1])
            )
        if self.is_silent:
            self._held_back.append((connection, answer))
        elif self.split_at:
            connection.transport.write(answer[: self.split_at])
            asyncio.get_running_loop().call_later(0.001, connection.transport.write, answer[self.split_at :])
        else:
            connection.transport.write(answer)

    def speak(self) -> None:
        """Send what was held back, late."""
        self.is_silent = False
        for connection, answer in self._held_back:
            connection.transport.write(answer)
        self._held_back.clear()

    def hang_up(self) -> None:
        for connection in self.connections:
            connection.transport.abort()

    async def wait_for_connection(self, number: int) -> None:
        await self._wait(lambda: len(self.connections) >= number)

    async def wait_for_command(self, command: list[bytes]) -> None:
        await self._wait(lambda: command in self.commands)

    async def _wait(self, is_reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not is_reached():
                self.changed.clear()
                await self.changed.wait()
