"""Run the servers without being root, and tell what they run as. Started by `test_servers`, maybe as root.

As root it first runs them once, which loads every module it needs from folders that only root may read, and
copies the programs to where everybody may execute them. Then it becomes somebody else for good.
"""

import json
import os
import pwd
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "platform"))

import psutil
import psycopg

from gateway.embedded import running_servers
from gateway.embedded.binaries import find_postgres, find_valkey


def main(place: Path) -> None:
    """Print one JSON object."""
    if os.geteuid() == 0:
        _run(place / "as-root")
        _become_nobody(place)
    print(json.dumps(_run(place / "home" / "var")))  # noqa: T201


def _become_nobody(place: Path) -> None:
    folders = []
    for program in (find_postgres(), find_valkey()):
        for part in program.parts:
            source, target = program.base / part, place / "programs" / part
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        folders.append(str((place / "programs" / program.path.relative_to(program.base)).parent))
    for path in [place / "programs", *(place / "programs").rglob("*")]:
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    os.environ["PATH"] = os.pathsep.join([*folders, os.defpath])
    nobody = pwd.getpwnam("nobody")
    home = place / "home"
    home.mkdir(mode=0o700)
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    os.chdir(home)
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def _run(var_dir: Path) -> dict[str, int]:
    with running_servers(var_dir) as servers:
        with psycopg.connect(servers.database_url, options="-c role=relay_owner") as owner:
            owner.execute("CREATE TABLE rows AS SELECT 1 AS one")
            row = owner.execute("SELECT count(*) FROM rows").fetchone()
            postgres = psutil.Process(owner.info.backend_pid).uids().real
        valkey = psutil.Process(int((servers.valkey.data / "valkey.pid").read_text())).uids().real
    return {"rows": row[0] if row else 0, "user": os.getuid(), "postgres": postgres, "valkey": valkey}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
