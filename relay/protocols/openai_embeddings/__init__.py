"""Pure. The OpenAI embeddings dialect: requests, answers, usage. There are no streams; errors are those of chat."""
