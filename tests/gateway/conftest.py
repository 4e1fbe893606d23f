"""Folders and environments for tests that run real processes, and a site for those that apply files to it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounts import scope
from gateway.secret_store import SECRET_NAMES
from tests.gateway.declared_sites import Site
from tests.gateway.processes import make_place

VARIABLES = (
    *("HOST", "PORT", "VAR_DIR", "DATABASE_URL", "REDIS_URL", "LIMITS_REDIS_URL", "WEB_WORKERS", "CONFIG"),
    *("PUBLIC_URL", "TRUSTED_PROXIES", "EMAIL_URL", "PRACTICE", "DRAIN_S", "PRACTICE_PORT", "CONSOLE_SOCKET"),
    *SECRET_NAMES,
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A short folder that every user may pass through (pytest's own belong to one user)."""
    folder = make_place()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bare_env(monkeypatch: pytest.MonkeyPatch, place: Path) -> pytest.MonkeyPatch:
    """An environment with none of our variables but VAR_DIR, which is an empty folder."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    monkeypatch.setenv("VAR_DIR", str(place))
    return monkeypatch


@pytest.fixture
def site(db: None, tmp_path: Path, settings) -> Iterator[Site]:
    """Whoever applies files; such tests look at all organizations at once."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick
    with scope.site("test"):
        yield Site(tmp_path)
