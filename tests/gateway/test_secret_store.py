import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.secret_store import SECRET_NAMES, SecretStoreError, fingerprint, load_secrets, write_private

_PLATFORM = Path(__file__).resolve().parents[2] / "platform"
_PRINT = f"""
import json, sys
sys.path.insert(0, {str(_PLATFORM)!r})
from pathlib import Path
from gateway.secret_store import load_secrets
print(json.dumps(dict(load_secrets(Path(sys.argv[1])))))
"""


def test_secrets_are_made_once(place):
    first = load_secrets(place)
    assert set(first) == set(SECRET_NAMES)
    assert load_secrets(place) == first


def test_the_file_is_ours_alone(place):
    load_secrets(place)
    assert stat.S_IMODE((place / "secrets.json").stat().st_mode) == 0o600


def test_two_installations_have_different_secrets(place):
    first, second = load_secrets(place / "a"), load_secrets(place / "b")
    assert all(first[name] != second[name] for name in SECRET_NAMES)


def test_processes_that_start_together_agree(place):
    starters = [
        subprocess.Popen([sys.executable, "-S", "-c", _PRINT, str(place)], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    told = {starter.communicate(timeout=30)[0] for starter in starters}
    assert len(told) == 1
    assert set(json.loads(told.pop())) == set(SECRET_NAMES)


def test_a_secret_that_a_new_version_needs_is_added(place):
    write_private(place / "secrets.json", json.dumps({"SECRET_KEY": "kept"}))
    found = load_secrets(place)
    assert found["SECRET_KEY"] == "kept"
    assert set(found) == set(SECRET_NAMES)
    assert load_secrets(place) == found


@pytest.mark.parametrize("text", ["", "[]", '{"SECRET_KEY": 1}', '{"SECRET_KEY": "cut'])
def test_a_damaged_file_is_refused_and_kept(place, text):
    write_private(place / "secrets.json", text)
    with pytest.raises(SecretStoreError, match="damaged"):
        load_secrets(place)
    assert (place / "secrets.json").read_text() == text


def test_a_file_open_to_others_is_refused(place):
    load_secrets(place)
    (place / "secrets.json").chmod(0o640)
    with pytest.raises(SecretStoreError, match="chmod 600"):
        load_secrets(place)


def test_a_folder_that_cannot_be_made_is_refused(place):
    (place / "file").touch()
    with pytest.raises(SecretStoreError, match="cannot be"):
        load_secrets(place / "file" / "var")


def test_writing_replaces_the_whole_file(place):
    path = place / "private"
    write_private(path, "long text")
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(place.iterdir()) == [path]


def test_a_fingerprint_does_not_show_the_secret():
    assert "secret" not in fingerprint("secret")
    assert len(fingerprint("secret")) == 12
