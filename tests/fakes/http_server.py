"""An HTTP server that says exactly what a test tells it to: literal bytes, at given times, on a real socket.

A script is a coroutine that is given one accepted connection as a `Peer` and reads like the conversation it
plays:

    async def cut_in_the_body(peer):
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\\r\\ncontent-length: 10\\r\\n\\r\\nhalf")
        peer.reset()

    async with HttpServer(cut_in_the_body) as server:
        ...  # server.url, server.requests

The nth connection plays the nth script, the last script is played by all that follow. A connection is
closed when its script returns. `answering` makes the commonest script: one answer for each request, then
wait for the client to leave. `in_thread` runs a server beside code that has no event loop. An exception in
a script fails the test when the server is closed, unless it is the connection breaking, which is what many
tests are about.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["HttpServer", "Peer", "Request", "Script", "answer", "answering", "chunk", "in_thread"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came, and taken apart."""

    raw_head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.raw_head.split(b"\r\n", 1)[0].decode()

    @property
    def headers(self) -> dict[str, str]:
        pairs = (line.split(b":", 1) for line in self.raw_head.split(b"\r\n")[1:] if line)
        return {name.decode().lower(): value.strip().decode("latin-1") for name, value in pairs}


class Peer:
    """The server's end of one connection; `number` counts from 1."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: "HttpServer"
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._server = server
        self.number = server.connections

    @property
    def is_resumed(self) -> bool:
        """Whether the client came with a TLS session of an earlier connection, and we took it."""
        return bool(self._writer.get_extra_info("ssl_object").session_reused)

    async def request(self) -> Request:
        """Read one request to the end of its body. Raises IncompleteReadError if the client leaves before."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        request = Request(head, b"")
        length = int(request.headers.get("content-length", "0"))
        request = Request(head, await self._reader.readexactly(length))
        self._server.requests.append(request)
        return request

    async def receive(self, count: int) -> bytes:
        """Read exactly `count` bytes."""
        return await self._reader.readexactly(count)

    async def send(self, *pieces: bytes, gap_s: float = 0.0) -> None:
        """Send pieces one after the other, so that they also arrive as such, `gap_s` apart."""
        for number, piece in enumerate(pieces):
            if number:
                await self.pause(gap_s)
            self._writer.write(piece)
            await self._writer.drain()

    async def pause(self, seconds: float = 0.0) -> None:
        """Wait; without a time just long enough for a client in the same event loop to take what was sent."""
        if seconds:
            await asyncio.sleep(seconds)
        else:
            for _ in range(3):
                await asyncio.sleep(0)

    async def gone(self) -> float:
        """Wait until the client has closed, whatever it sends; return when (`time.perf_counter()`)."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while await self._reader.read(65_536):
                pass
        return time.perf_counter()

    async def tunnel_to(self, port: int) -> None:
        """Pass everything on, both ways, to `port` of this machine until one side closes, as a proxy does."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
            sink.close()

        try:
            await asyncio.gather(copy(self._reader, writer), copy(reader, self._writer))
        finally:
            writer.close()

    def stop_reading(self) -> None:
        """Take nothing from the network any more, not even a goodbye."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close in good order."""
        self._writer.close()

    def half_close(self) -> None:
        """Say that nothing more will come, but go on listening."""
        self._writer.write_eof()

    def reset(self) -> None:
        """Break the connection: the client sees a reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Peer], Awaitable[object]]


class HttpServer:
    """See the module. `requests` are all requests read so far, `connections` how many were accepted."""

    def __init__(
        self,
        *scripts: Script,
        tls: ssl.SSLContext | None = None,
        unix_path: Path | None = None,
        port: int = 0,
    ) -> None:
        self._scripts = scripts
        self._tls = tls
        self._unix_path = unix_path
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: list[BaseException] = []
        self.port = port
        self.requests: list[Request] = []
        self.connections = 0
        self.open_connections = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        if self._unix_path is not None:
            self._server = await asyncio.start_unix_server(self._accept, self._unix_path, ssl=self._tls)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        for _ in range(5):  # a connection that is just being accepted shall be ours before we close it
            await asyncio.sleep(0)
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        if self._broken and exc_info[0] is None:
            raise self._broken[0]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        self.open_connections += 1
        task = asyncio.create_task(self._play(script, Peer(reader, writer, self), writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, script: Script, peer: Peer, writer: asyncio.StreamWriter) -> None:
        try:
            await script(peer)
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:  # the server is closed, and shall not wait for anybody's goodbye
            writer.transport.abort()
        except Exception as exc:  # noqa: BLE001  # reported when the server is closed
            self._broken.append(exc)
        finally:
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


def answer(body: bytes = b"", *, status: str = "200 OK", headers: bytes = b"") -> bytes:
    """Return a whole answer with a length. `headers` are lines with their line ends."""
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status.encode(), headers, len(body), body)


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk; b"" is the last one, with the end of the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def answering(*answers: bytes) -> Script:
    """Return a script that gives one answer for each request, then waits for the client to leave."""

    async def script(peer: Peer) -> None:
        for one in answers:
            await peer.request()
            await peer.send(one)
        await peer.gone()

    return script


@contextlib.contextmanager
def in_thread(*scripts: Script, tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    """Run a server in a thread of its own while the block lasts."""
    server = HttpServer(*scripts, tls=tls)
    stop: asyncio.Event
    loop: asyncio.AbstractEventLoop
    is_ready = threading.Event()

    async def serve() -> None:
        nonlocal stop, loop
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with server:
            is_ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert is_ready.wait(5)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
