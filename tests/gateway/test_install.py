import importlib.util
from pathlib import Path

import pytest

_FILE = Path(__file__).resolve().parents[2] / "requirements" / "install.py"


@pytest.fixture(scope="module")
def install():
    spec = importlib.util.spec_from_file_location("install", _FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stronger_place_of_a_setting_wins(install):
    listing = "\n".join(
        [
            ":env:.index-url='https://env.example/simple'",
            "global.index-url='https://global.example/simple'",
            "global.timeout='60'",
            "user.extra-index-url='https://a.example https://b.example'",
            "download.index-url='https://other.example'",
            "a line of something else",
            "global.broken='",
        ]
    )
    assert install.read_pip_settings(listing) == {
        "index-url": "https://env.example/simple",
        "timeout": "60",
        "extra-index-url": "https://a.example https://b.example",
    }


def test_uv_asks_where_pip_would_ask(install):
    settings = {
        "index-url": "https://index.example/simple",
        "extra-index-url": "https://a.example\nhttps://b.example",
        "find-links": "/wheels /more",
        "trusted-host": "index.example",
        "cert": "/etc/own.pem",
    }
    assert install.uv_environment(settings, {"PATH": "/bin"}) == {
        "PATH": "/bin",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "UV_INDEX": "https://a.example https://b.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "index.example",
        "SSL_CERT_FILE": "/etc/own.pem",
        "UV_SYSTEM_CERTS": "1",
    }


def test_nothing_is_added_where_pip_has_no_settings(install):
    assert install.uv_environment({}, {"PATH": "/bin"}) == {"PATH": "/bin"}


def test_what_is_said_to_uv_itself_stays(install):
    environ = {"UV_DEFAULT_INDEX": "https://own.example", "SSL_CERT_FILE": "/own.pem"}
    found = install.uv_environment({"index-url": "https://pip.example", "cert": "/pip.pem"}, environ)
    assert found["UV_DEFAULT_INDEX"] == "https://own.example"
    assert found["SSL_CERT_FILE"] == "/own.pem"
    assert found["UV_SYSTEM_CERTS"] == "1"
