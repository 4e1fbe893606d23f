"""Stand-in for worker, beat and practice: waits to be ended."""

import signal
import sys

sys.stderr.write(" ".join(sys.argv[1:]) + "\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    signal.pause()
