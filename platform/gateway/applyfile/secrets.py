"""Secrets of an apply file: `env:NAME`, `file:PATH` (beside the apply file) or the literal."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SecretMissing", "SecretSource"]

MOST_BYTES = 64 * 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretMissing(Exception):
    """The secret is not where the file says. The text never repeats a literal."""


@dataclass(frozen=True, slots=True)
class SecretSource:
    """Where named secrets come from: a reader of the environment and the folder that paths start from."""

    read_variable: Callable[[str], str | None]
    folder: Path

    def resolve(self, text: str) -> str:
        """The secret that `text` names, or is. Raises SecretMissing."""
        if text.startswith("env:"):
            name = text.removeprefix("env:")
            if not _VARIABLE.fullmatch(name):
                raise SecretMissing("env: must be followed by the name of an environment variable")
            value = self.read_variable(name)
            if not value:
                raise SecretMissing(f"the environment variable {name} is not set")
            return value
        if text.startswith("file:"):
            return self._read_file(text.removeprefix("file:"))
        return text

    def _read_file(self, name: str) -> str:
        path = self.folder / Path(name).expanduser()
        try:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
            text = data.decode().strip()
        except OSError as exc:
            raise SecretMissing(f"the file {path} cannot be read: {exc.strerror}") from exc
        except (UnicodeDecodeError, ValueError) as exc:
            raise SecretMissing(f"the file {path!s} cannot be read as text") from exc
        if not text or len(data) > MOST_BYTES:
            raise SecretMissing(f"the file {path} is {'too long' if text else 'empty'}")
        return text
