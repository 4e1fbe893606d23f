"""Pure. The OpenAI chat completions dialect: requests, stream events, usage, errors."""
