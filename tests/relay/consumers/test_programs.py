"""Classes of programs, by what they say of themselves."""

import pytest

from relay.consumers.programs import program_of


@pytest.mark.parametrize(
    ("user_agent", "program"),
    [
        (b"claude-cli/2.1.303 (external, cli)", "claude-code"),
        (b"codex_cli_rs/0.50.0 (Linux)", "codex"),
        (b"GeminiCLI/0.9 (linux; x64)", "gemini-cli"),
        (b"OpenAI/Python 3.57.0", "openai-python"),
        (b"AsyncOpenAI/Python 3.57.0", "openai-python"),
        (b"OpenAI/JS 7.1.0", "openai-node"),
        (b"Mozilla/5.0 (Macintosh) AppleWebKit CherryStudio/1.9", "cherry-studio"),
        (b"Mozilla/5.0 (X11; Linux)", "browser"),
        (b"curl/8.5.0", "curl"),
        (b"python-httpx/0.28", "httpx"),
        (b"thing/1.0", "other"),
        (b"\xff\xfe", "other"),
        (b"x" * 10_000, "other"),
        (b"", ""),
    ],
)
def test_programs(user_agent: bytes, program: str) -> None:
    assert program_of(user_agent) == program
