"""The gate of a start: server processes load their code while the database is still being prepared, and wait here
before they serve anybody.

A pair of connected sockets. The supervisor keeps one end; every child inherits the other and looks for one byte in it
without taking it out, so that a child that is started again later finds the gate open. Without that byte the end of
the supervisor ends who waits.
"""

import socket

__all__ = ["Gate", "wait_at"]


class Gate:
    """The supervisor's side. `handle` is the file descriptor that children inherit."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()

    @property
    def handle(self) -> int:
        return self._theirs.fileno()

    def open(self) -> None:
        """Let everybody through, now and later. Once."""
        self._ours.send(b"1")

    def close(self) -> None:
        """Give both ends back; children that still wait end."""
        self._ours.close()
        self._theirs.close()


def wait_at(handle: int) -> bool:
    """Block until the gate is open; False if it never will be. Takes over the inherited descriptor."""
    with socket.socket(fileno=handle) as gate:
        return gate.recv(1, socket.MSG_PEEK) != b""
