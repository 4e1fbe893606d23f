#!/usr/bin/env python
"""The command line of the product, from any folder. `manage.py up` runs everything; `help` lists the rest."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
_COMMAND_OF_ITS_OWN = "up"


def main() -> None:
    """Hand over to `gateway.up` or to Django. Bad variables of the environment end in one line."""
    # `platform` holds packages and is none itself: as one it would hide Python's own module of that name.
    for folder in (ROOT / "platform", ROOT):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    if sys.argv[1:2] == [_COMMAND_OF_ITS_OWN]:
        # Before any settings: it decides the URLs that settings read.
        from gateway import up

        sys.exit(up.main(sys.argv[2:]))
    from gateway.env import EnvError

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except EnvError as exc:
        sys.exit(f"manage.py: {exc}")


if __name__ == "__main__":
    main()
