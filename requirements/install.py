"""Install a hash-pinned requirements file into the virtual environment whose Python runs this.

uv does it in seconds where pip takes half a minute, so uv is installed first, by pip and from its own pinned
file. Where uv cannot be had or fails, pip installs the same file: slower, with the same result.

A package index, folders of wheels and certificates that pip is configured for are handed on to uv, which does
not read pip's configuration. What the environment says to uv itself is left as it is.

Only Python's own library is used: nothing else is installed yet.
"""

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

__all__ = ["main", "read_pip_settings", "uv_environment"]

_UV_LOCK = Path(__file__).with_name("uv.txt")
# The order in which pip lets one place of a setting win over another, weakest first.
_SECTIONS = ("global", "user", "site", "install", ":env:")


def read_pip_settings(listing: str) -> dict[str, str]:
    """Pure. The settings in the output of `pip config list`; a stronger place wins.

    >>> read_pip_settings("global.index-url='a'\\n:env:.index-url='b'\\n")
    {'index-url': 'b'}
    """
    ranked: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        place, equals, quoted = line.partition("=")
        section, _, name = place.rpartition(".")
        if not equals or section not in _SECTIONS:
            continue
        try:
            value = str(ast.literal_eval(quoted))
        except (SyntaxError, ValueError):
            continue
        rank = _SECTIONS.index(section)
        if rank >= ranked.get(name, (-1, ""))[0]:
            ranked[name] = (rank, value)
    return {name: value for name, (_, value) in ranked.items()}


def uv_environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Pure. The environment for uv that makes it ask where pip would ask."""
    found = {}
    if "index-url" in settings:
        found["UV_DEFAULT_INDEX"] = settings["index-url"]
    if "extra-index-url" in settings:
        found["UV_INDEX"] = " ".join(settings["extra-index-url"].split())
        # As pip does: the version counts, not the index. Hashes are pinned, so none can slip in another file.
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if "find-links" in settings:
        found["UV_FIND_LINKS"] = ",".join(settings["find-links"].split())
    if "trusted-host" in settings:
        found["UV_INSECURE_HOST"] = " ".join(settings["trusted-host"].split())
    if "cert" in settings:
        found["SSL_CERT_FILE"] = settings["cert"]
    if "cert" in settings or environ.get("SSL_CERT_FILE") or environ.get("SSL_CERT_DIR"):
        found["UV_SYSTEM_CERTS"] = "1"
    return {**found, **environ}


def main(lock: str) -> int:
    """Install; the exit code."""
    uv = _find_uv()
    if uv is not None:
        env = uv_environment(read_pip_settings(_pip_listing()), os.environ)
        command = [uv, "pip", "install", "--python", sys.executable, "--require-hashes", "-r", lock]
        if subprocess.run(command, env=env, check=False).returncode == 0:
            return 0
        sys.stderr.write("uv could not install the requirements; pip tries it now\n")
    code = _pip("install", "--require-hashes", "-r", lock)
    if code != 0:
        sys.stderr.write(f"{lock} could not be installed: see the lines above\n")
    return code


def _find_uv() -> str | None:
    """The uv of this environment, installed now if need be, or one on PATH; None if there is none to be had."""
    own = Path(sysconfig.get_path("scripts")) / "uv"
    if not own.exists() and _pip("install", "--quiet", "--require-hashes", "-r", str(_UV_LOCK)) != 0:
        sys.stderr.write("uv cannot be installed here; going on without\n")
    return str(own) if own.exists() else shutil.which("uv")


def _pip_listing() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    return done.stdout


def _pip(*arguments: str) -> int:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python requirements/install.py requirements/run.txt")
    sys.exit(main(sys.argv[1]))
