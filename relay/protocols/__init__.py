"""Pure. One dialect each: parse and render requests, events, usage, errors; `sse` and `json_splice` serve them all.

Dialects do not import each other. `dialect` says what one is, `dialects` is the table by endpoint; `openai_body`,
`openai_inputs` and `openai_answer` hold what the forms of OpenAI share.
"""
