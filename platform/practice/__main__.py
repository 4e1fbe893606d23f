"""`python -m practice --port N [--host 127.0.0.1]`: serve until SIGTERM."""

import argparse
import asyncio
import sys
from collections.abc import Callable

from practice.server import serve


def main() -> int:
    """Read the arguments and serve; 1 when the port is taken."""
    parser = argparse.ArgumentParser(prog="practice", description="A provider to try the relay against.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    arguments = parser.parse_args()
    try:
        with asyncio.Runner(loop_factory=_choose_loop()) as runner:
            runner.run(serve(arguments.host, arguments.port))
    except OSError as exc:
        sys.stderr.write(f"practice: cannot listen on {arguments.host}:{arguments.port}: {exc.strerror}\n")
        return 1
    return 0


def _choose_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # not offered for every platform; the standard loop does the same, slower
        return asyncio.new_event_loop
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
