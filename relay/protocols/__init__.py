"""Pure. One dialect each: parse and render requests, events, usage, errors; `sse` and `json_splice` serve them all.

Dialects do not import each other.
"""
