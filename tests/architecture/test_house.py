"""The rules of the house that no linter knows."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("platform/gateway", "platform/console", "platform/practice", "relay", "billing", "accounts")
MOST_LINES = 400
# Who may look at the process's environment: its readers, and the launcher that hands it to its children.
READS_ENVIRONMENT = re.compile(
    r"platform/gateway/(env|env_values|up|serve|console_asgi|start/.*|embedded/.*)\.py|manage\.py"
)


def sources() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:  # an unpacked archive
        return [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if path.is_file() and ".venv" not in path.parts
        ]
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_platform_is_a_plain_folder_and_the_standard_library_keeps_its_module() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))
    code = "import platform; assert platform.system(); print(platform.__file__)"
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not shown.stdout.startswith(str(ROOT / "platform"))


def test_imports_keep_the_contracts() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    done = subprocess.run(
        [str(lint), "--no-cache"],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_files_stay_small_enough_to_read() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if "migrations" not in path.parts and (lines := len(path.read_text().splitlines())) > MOST_LINES
    }
    assert not long


def test_modules_say_what_they_are_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.name not in ("__init__.py", "apps.py")
        and "migrations" not in path.parts
        and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not silent


def test_pure_rooms_say_so() -> None:
    pure = [
        *(ROOT / "relay/protocols").rglob("*.py"),
        *(ROOT / "relay/scheduler").rglob("*.py"),
        ROOT / "relay/errors.py",
    ]
    pure += [ROOT / "relay/call.py", ROOT / "billing/pricing.py"]
    wrong = [
        str(path.relative_to(ROOT))
        for path in pure
        if not (ast.get_docstring(ast.parse(path.read_text())) or "").startswith("Pure.")
    ]
    assert not wrong


def test_only_the_readers_look_at_the_environment() -> None:
    wrong = [
        name
        for path in sources()
        if re.search(r"\bos\.(environ|getenv)\b", path.read_text())
        and not READS_ENVIRONMENT.fullmatch(name := str(path.relative_to(ROOT)))
        and not name.startswith("platform/practice/")
    ]
    assert not wrong


def test_no_address_of_a_package_registry_and_no_path_of_one_machine_is_committed() -> None:
    hosts = [
        "py" + "pi.org",
        "python" + "hosted.org",
        "npm" + "js.org",
        "npm" + "js.com",
        "deb." + "debian.org",
    ]
    paths = re.compile("(?<![A-Za-z0-9_.])/(?:work|root|farm)/[a-z]")
    found = []
    for name in tracked():
        data = (ROOT / name).read_bytes()
        if b"\0" in data[:1024]:
            continue
        text = data.decode("utf-8", "replace")
        found += [f"{name}: {host}" for host in hosts if host in text]
        found += [f"{name}: {match.group()}" for match in paths.finditer(text)]
    assert not found


def test_locks_pin_every_package_by_hash() -> None:
    for lock in ("requirements/run.txt", "requirements/test.txt"):
        entries = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / lock).read_text())
        packages = [entry for entry in entries if re.match(r"[A-Za-z0-9_.\[\]-]+==", entry)]
        assert len(packages) > 50
        assert all("--hash=sha256:" in entry for entry in packages)
