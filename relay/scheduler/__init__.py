"""Pure. Which upstreams may answer a call, and in which order."""
