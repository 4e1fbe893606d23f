"""Which endpoint a path means, however a client spells it."""

import pytest

from relay.consumers.paths import MODEL, MODELS, endpoint_of

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/v1/chat/completions", (CHAT, "")),
        ("/v1/completions", ("/v1/completions", "")),
        ("/openai/v1/v1/completions/", ("/v1/completions", "")),
        ("/v1/embeddings/", ("/v1/embeddings", "")),
        ("/v1/chat/completions/", (CHAT, "")),
        ("/openai/v1/chat/completions", (CHAT, "")),
        ("/v1/v1/chat/completions", (CHAT, "")),
        ("/openai/v1/v1/v1/chat/completions//", (CHAT, "")),
        ("/v1/models", (MODELS, "")),
        ("/v1/models/", (MODELS, "")),
        ("/v1/models/m", (MODEL, "m")),
        ("/v1/models/vendor/m:1/", (MODEL, "vendor/m:1")),
        ("/openai/v1/v1/models/m", (MODEL, "m")),
    ],
)
def test_paths_of_ours(path: str, endpoint: tuple[str, str]) -> None:
    assert endpoint_of(path) == endpoint


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/v1", "/v1/", "/v1/chat", "/v1/chat/completions/x", "/chat/completions", "/v2/models", "/V1/models",
        "/v1/model", "/v1//models", "/openai/openai/v1/models", "/v1/models/\x00", "/v1/models/" + "x" * 512,
        "v1/models", "/v1v1/models",
    ],
)  # fmt: skip
def test_paths_of_nobody(path: str) -> None:
    assert endpoint_of(path) is None
