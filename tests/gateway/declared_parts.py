"""Small files with one thing in them, and how they are read."""

from pathlib import Path

import pytest

from gateway.applyfile.declared import Declared
from gateway.applyfile.problems import FileRefused, Problems
from gateway.applyfile.reading import read_declared
from gateway.applyfile.secrets import SecretSource

ENVIRONMENT = {"KIMI_A": "sk-kimi-secret", "ANN_PASSWORD": "correct horse"}


def read(text: str | bytes, folder: Path = Path()) -> Declared:
    data = text.encode() if isinstance(text, str) else text
    secrets = SecretSource(ENVIRONMENT.get, folder)
    return read_declared(data, problems=Problems("file.yaml"), secrets=secrets)


def problems_of(text: str | bytes, folder: Path = Path()) -> list[str]:
    with pytest.raises(FileRefused) as caught:
        read(text, folder)
    return caught.value.problems


def upstream(**changed: str) -> str:
    fields = {
        "name": "a",
        "protocol": "openai",
        "base_url": "https://api.example.com/v1",
        "credential": "secret",
        **changed,
    }
    return "upstreams:\n  - " + "\n    ".join(f"{name}: {value}" for name, value in fields.items()) + "\n"


def model(**changed: str) -> str:
    fields = {"name": "m", "price": '{currency: CNY, input: "1", output: "2"}', **changed}
    return "models:\n  - " + "\n    ".join(f"{name}: {value}" for name, value in fields.items()) + "\n"


def organization(**changed: str) -> str:
    fields = {"name": "acme", **changed}
    return "organizations:\n  - " + "\n    ".join(f"{name}: {value}" for name, value in fields.items()) + "\n"
