"""Pure. The OpenAI text completions dialect (the older form without messages): requests, stream events, usage.

Errors are those of chat completions.
"""
