"""The real `up`; stand-ins for the commands it calls, which leave marks and obey files in VAR_DIR."""

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]


def _wait_until_gone(path: Path) -> None:
    while path.exists():
        time.sleep(0.02)


def main(command: str, *arguments: str) -> int:
    """Do as told by the files "no-migrate", "slow-prepare" and "seeded"."""
    if command == "up":
        from gateway import up

        return up.main(arguments)
    var_dir = Path(os.environ["VAR_DIR"])
    with (var_dir / "commands").open("a") as marks:
        marks.write(f"{command} {' '.join(arguments)}\n".replace(" \n", "\n"))
    if (var_dir / "slow-prepare").exists():
        _wait_until_gone(var_dir / "slow-prepare")
    if command == "prepare" and (var_dir / "no-migrate").exists():
        sys.stderr.write("relation relay_model is damaged\n")
        return 1
    if command == "prepare" and not (var_dir / "seeded").exists():
        (var_dir / "seeded").touch()
        sys.stdout.write(f"login: ann@example.com, practice at {os.environ['PRACTICE_PORT']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
