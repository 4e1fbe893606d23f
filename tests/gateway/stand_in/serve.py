"""Stand-in for the server processes: answers at once, slowly or not at all, and drains on SIGTERM.

It waits at the gate as the real ones do. `/slow/N` answers after N seconds, `/crash` ends the process, anything else
tells its number.
"""

import asyncio
import os
import signal
import socket
import sys

from gateway.start.gate import wait_at


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()
        return
    path = head.split(b" ")[1].decode()
    if path == "/crash":
        os._exit(3)
    if path.startswith("/slow/"):
        sys.stderr.write("slow call\n")
        await asyncio.sleep(float(path.removeprefix("/slow/")))
    body = str(os.getpid()).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


async def _serve(kind: str, place: str) -> None:
    calls: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer(reader, writer))
        calls.add(task)
        await asyncio.wait([task])
        calls.discard(task)

    if kind == "relay":
        listening = socket.socket(fileno=int(place))
        server = await asyncio.start_server(serve, sock=listening)
    else:
        server = await asyncio.start_unix_server(serve, place)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    server.close()
    while calls:
        await asyncio.wait(calls)


if __name__ == "__main__":
    sys.stderr.write("at the gate\n")
    if not wait_at(int(sys.argv[5])):
        sys.exit("the start was given up")
    asyncio.run(_serve(sys.argv[1], sys.argv[3]))
