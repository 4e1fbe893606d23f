"""Free TCP ports for servers that must find the same port again when they are restarted."""

import errno
import random
import socket

__all__ = ["free_port", "is_free"]

# Below the range the system gives to outgoing connections (Linux from 32768, macOS from 49152): a port from
# there could be taken by any of them while its server is restarted.
_LOW, _HIGH = 20000, 32000
_TRIES = 200


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen(1)
        except OSError:
            return False
    return True


def free_port(host: str) -> int:
    """A port that nobody listens on at this moment. Raises OSError if there is none."""
    choice = random.SystemRandom()
    for _ in range(_TRIES):
        port = choice.randrange(_LOW, _HIGH)
        if is_free(host, port):
            return port
    raise OSError(errno.EADDRINUSE, f"no free port on {host}")
