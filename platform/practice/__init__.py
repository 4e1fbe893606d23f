r"""A provider to try the relay against, without an account: every answer says that it is practice text.

`python -m practice --port 9100` serves OpenAI's forms under `/v1` on 127.0.0.1 (`--port 0` takes a free
port; the line `listening: http://127.0.0.1:PORT` says which). Any bearer key is an account of its own
with a prompt cache of its own. Nothing leaves the machine, nothing is stored.

    curl -N 127.0.0.1:9100/v1/chat/completions -H 'authorization: Bearer any' \
      -d '{"model": "practice-chat", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'

Addresses: POST `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`; GET `/v1/models`,
`/v1/models/{id}`; GET `/practice/stats` (counters: requests, open, hung_up, completed, connections,
connections_open), POST `/practice/reset` (counters and cache to zero), GET `/healthz`. The `/v1` may be left
out, as with providers whose base address has none.

What it does like a provider: streams and plain answers, tools (a call when `tool_choice` demands one, or when
the last user message names a tool or says "tool"; a tool's result gets a text that mentions it), several
calls at once, `n`, `stop`, `max_tokens`, JSON answers, reasoning, usage when asked for, a prompt cache with
the published rules (`models.py`), waiting time that grows with the uncached part of the prompt; in the older
form several prompts, `echo`, `best_of` and `logprobs`; vectors that are the same for the same text.

What it does like a provider on a bad day: whatever `@practice key=value,key=value@` in the last user message,
prompt or input asks for. `directives.py` lists the keys.

How the rooms fit: everything but `server.py` and `__main__.py` is pure. `forms/` reads a request of one wire
form into a `Prompt` and renders an `Answer` in that form; `answer.py` decides what is said, `usage.py` how it
is counted, `script.py` when which bytes go out (a script is an iterator of steps), `wire.py` how they are
framed; `app.py` puts these together; `server.py` plays the script on a socket. A new wire form is a new
folder in `forms/` and a line in its table. The package imports nothing from the rest of the product.
"""
