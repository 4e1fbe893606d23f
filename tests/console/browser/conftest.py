"""A real browser against the running console."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from gateway.embedded.roles import ensure_roles
from tests.console.cast import PASSWORD

HERE = Path(__file__).parent
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def town(servers: dict[str, str]) -> Iterator[str]:
    """The address of a console that has a database of its own."""
    name = f"town_{WORKER}"
    with psycopg.connect(servers["admin"], autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        admin.execute(f"CREATE DATABASE {name}".encode())
    with psycopg.connect(servers["admin"].replace("/postgres?", f"/{name}?")) as admin:
        ensure_roles(admin, "yizhan")
        admin.execute(f"ALTER DATABASE {name} OWNER TO relay_owner".encode())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "town.py"), str(port)],
            env={
                **os.environ,
                "DATABASE_URL": servers["login"].replace("/yizhan?", f"/{name}?"),
                "HOST": "127.0.0.1",
                "PORT": str(port),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(f"{url}/healthz", process, log)
            yield url
        finally:
            process.terminate()
            process.wait(20)
    with psycopg.connect(servers["admin"], autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def wait_for(url: str, process: subprocess.Popen[bytes], log: tempfile.SpooledTemporaryFile[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise AssertionError(f"the console did not start:\n{log.read().decode()}") from None
            time.sleep(0.1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: its event loop must not run beside those of other tests of this worker."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install Debian's package chromium to see the pages")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """One browser window. `complaints` collects console errors, failed answers and requests to anywhere else."""

    def __init__(self, context: BrowserContext, town: str) -> None:
        self.town = town
        self.complaints: list[str] = []
        context.set_default_timeout(15_000)
        self.page: Page = context.new_page()
        self.page.on(
            "console", lambda message: self._note(message.type in ("error", "warning"), message.text)
        )
        self.page.on("pageerror", lambda error: self._note(True, str(error)))
        self.page.on("request", lambda request: self._note(not request.url.startswith(town), request.url))
        self.page.on(
            "response", lambda answer: self._note(answer.status >= 400, f"{answer.status} {answer.url}")
        )

    def _note(self, bad: bool, text: str) -> None:
        if bad:
            self.complaints.append(text)

    def go(self, path: str) -> Page:
        self.page.goto(self.town + path)
        return self.page

    def sign_in(self, name: str) -> Page:
        self.go("/sign-in/")
        self.page.locator("input[name=login]").fill(f"{name}@example.com")
        self.page.locator("input[name=password]").fill(PASSWORD)
        self.page.locator("input[name=password]").press("Enter")
        self.page.wait_for_url(f"{self.town}/")
        return self.page


@pytest.fixture
def visit(town: str, browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens windows: width, language, theme and whether scripts run are the caller's choice."""
    contexts = []

    def opened(
        *, width: int = 1440, locale: str = "en-GB", theme: str = "light", scripts: bool = True
    ) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            locale=locale,
            color_scheme=theme,
            java_script_enabled=scripts,
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        return Visit(context, town)

    yield opened
    for context in contexts:
        context.close()
