"""Every command of the README is run: what it promises to a newcomer works as it stands there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.product import Product
from tests.journeys.conftest import OPERATOR_KEY, PRACTICE_KEY

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str, containing: str) -> str:
    """The one code block of this language that contains a text."""
    found = [b for b in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in b]
    assert len(found) == 1, containing
    return str(found[0])


@pytest.fixture
def env(product: Product) -> dict[str, str]:
    return {**os.environ, "YIZHAN_KEY": PRACTICE_KEY}


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_first_call_by_curl(product: Product, env: dict[str, str]) -> None:
    command = block("sh", "curl -N").replace("http://127.0.0.1:8000", product.url)
    command = command.replace("export YIZHAN_KEY=sk-yz-...\n", "")
    done = subprocess.run(
        ["bash", "-euc", command], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    events = [line for line in done.stdout.splitlines() if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]"
    assert '"model":"practice-chat"' in events[0]


def test_the_first_call_by_the_sdk(product: Product, env: dict[str, str]) -> None:
    program = block("python", "OpenAI(").replace("http://127.0.0.1:8000", product.url)
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert "Practice" in done.stdout


def test_the_example_of_an_apply_file_is_accepted_as_it_stands(product: Product, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(block("yaml", "# site.yaml"))
    os_env = {"KIMI_A": "sk-secret-of-kimi", "ANN_PASSWORD": "a long enough pass phrase"}
    first = product.manage("apply", str(tmp_path / "site.yaml"), "--dry-run", env=os_env)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "kimi-k2" in first.stdout
    assert "sk-secret-of-kimi" not in first.stdout
    _, models = product.ask("/v1/models", key=OPERATOR_KEY)
    assert "kimi-k2" not in str(models)


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_pictures_of_the_readme_exist() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).is_file(), picture
