"""Host names: what stands beside another installation on the same one, and who asks for one that is not ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as site_settings
from django.core.exceptions import SuspiciousOperation
from django.test import Client, RequestFactory

from gateway.hosts import bad_request

ROOT = Path(__file__).resolve().parents[2]
STRANGER = "relay.elsewhere.example"


def cookie_names(var_dir: Path) -> list[str]:
    code = "from gateway import settings as s; print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME)"
    left_out = ("SECRET_KEY", "SECRET_KEY_FILE")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, "VAR_DIR": str(var_dir), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.split()


def test_two_installations_on_one_host_name_have_cookies_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = cookie_names(tmp_path / "a"), cookie_names(tmp_path / "b")
    assert not set(first) & set(second)
    # Nobody is signed out by a restart.
    assert cookie_names(tmp_path / "a") == first


def test_the_pages_use_these_cookies() -> None:
    response = Client().get("/sign-in/")
    assert list(response.cookies) == [site_settings.CSRF_COOKIE_NAME]


def test_a_page_under_a_foreign_host_name_says_which_setting_is_meant() -> None:
    response = Client(SERVER_NAME=STRANGER).get("/sign-in/")
    assert response.status_code == 400
    text = response.content.decode()
    assert text.count("PUBLIC_URL") >= 2
    assert "此地址未启用" in text
    assert STRANGER not in text


@pytest.mark.parametrize("path", ["/api/v1/calls/", "/v1/balance"])
def test_a_program_is_told_in_its_form(path: str) -> None:
    response = Client(SERVER_NAME=STRANGER).get(path)
    assert response.status_code == 400
    assert response["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["code"]) == (400, "unknown_host")
    assert "PUBLIC_URL" in problem["detail"]


def test_another_bad_request_is_not_explained_so() -> None:
    response = bad_request(RequestFactory().get("/"), SuspiciousOperation("other"))
    assert response.status_code == 400
    assert b"PUBLIC_URL" not in response.content
