"""Lists `up` among the commands. `manage.py` itself calls `gateway.up` before it reads any settings."""

import sys
from argparse import Namespace
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from gateway import up


class Command(BaseCommand):
    """Run everything, in the foreground."""

    help = "Run everything, in the foreground: servers, relay, console, worker and beat."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The options of `gateway.up`."""
        up.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until told to stop, and exit as `gateway.up` says."""
        sys.exit(up.run(Namespace(**options)))
