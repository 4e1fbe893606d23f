"""A clone in an empty home folder: `make run` prints `ready:`, and the first call of the README works."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_S = 240.0
FIRST_CALL = (
    b'{"model": "practice-chat", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}'
)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: nothing to clone")
def test_a_fresh_clone_runs_twice(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    kept = (
        "PATH",
        "LANG",
        "SSL_CERT_FILE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    )
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    # What was downloaded for this very run; the home folder itself is empty.
    cache = Path.home() / ".cache"
    env |= {
        "HOME": str(home),
        "UV_CACHE_DIR": str(cache / "uv"),
        "PIP_CACHE_DIR": str(cache / "pip"),
        "WEB_WORKERS": "1",
    }
    env["PORT"] = "0"
    first, first_s = _run(clone, env)
    key = re.search(r"^key: (sk-yz-\S+)$", first, re.MULTILINE)
    assert key is not None, first
    assert "ready: http://127.0.0.1:" in first
    assert (clone / "var" / "secrets.json").stat().st_mode & 0o777 == 0o600
    second, second_s = _run(clone, env, key=key.group(1))
    assert "key: " not in second
    log = (clone / "var" / "log" / "prepare.log").read_text()
    assert log.count("Applying accounts.0001_initial") == 1
    # For a person who watches: how long it takes is the machine's, what is done is asserted.
    sys.stderr.write(
        f"\nfresh clone: ready after {first_s:.1f} s with the installation, {second_s:.1f} s the second time\n"
    )
    shutil.rmtree(clone, ignore_errors=True)


def _run(clone: Path, env: dict[str, str], key: str = "") -> tuple[str, float]:
    """`make run` until it is ready, one streamed call, SIGTERM; what it printed, and the seconds until `ready:`."""
    began = time.monotonic()
    with (clone.parent / "errors").open("w") as errors:
        make = subprocess.Popen(
            ["make", "run"],
            cwd=clone,
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    printed, ready_s = "", 0.0
    assert make.stdout is not None
    with make.stdout:
        while "ready: " not in printed or ("key: " not in printed and not key):
            line = make.stdout.readline()
            assert line, printed + (clone.parent / "errors").read_text()
            assert time.monotonic() - began < START_S
            printed += line
            if line.startswith("ready: "):
                ready_s = time.monotonic() - began
        url = re.findall(r"^ready: (\S+)$", printed, re.MULTILINE)[0]
        key = key or re.findall(r"^key: (\S+)$", printed, re.MULTILINE)[0]
        request = urllib.request.Request(f"{url}/v1/chat/completions", FIRST_CALL)
        request.add_header("authorization", f"Bearer {key}")
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        assert text.endswith("data: [DONE]\n\n")
        make.send_signal(signal.SIGTERM)
        printed += make.stdout.read()
    make.wait(60)
    return printed, ready_s
