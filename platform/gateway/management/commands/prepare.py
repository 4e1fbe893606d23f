"""`manage.py prepare`: what a start asks of the database, in one process: migrate, seed, and apply a file if one is
named.

Where every migration of this release is recorded, migrating is two questions and no work. What `seed` and `apply` say
is for a person and goes to standard output; all else goes to standard error.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from accounts.row_security import UNGUARDED
from billing import partitions

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Bring the database to what this release and the configuration ask for: migrate, seed, apply."
    # They would load every page of the console, which nobody waits for; `make check` runs them.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--config", metavar="FILE", help="a file to apply")

    def handle(self, *args: Any, config: str | None = None, **options: Any) -> None:
        """Raises what the failing step raised, after its name was told."""
        self._step("migrate", self._migrate)
        self._step("seed", partial(call_command, "seed", stdout=self.stdout))
        if config is not None:
            self._step(f"apply {config}", partial(call_command, "apply", config, stdout=self.stdout))

    def _step(self, name: str, run: Callable[[], Any]) -> None:
        try:
            run()
        except BaseException:
            self.stderr.write(f"{name} failed:")
            raise

    def _migrate(self) -> None:
        if _has_pending_migrations():
            call_command("migrate", interactive=False, skip_checks=True, stdout=self.stderr)
        else:
            partitions.keep()
        _check_walls()


def _has_pending_migrations() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _check_walls() -> None:
    with connection.cursor() as cursor:
        cursor.execute(UNGUARDED)
        tables = [name for (name,) in cursor.fetchall()]
    if tables:
        raise CommandError(
            f"row-level security is not in force on {', '.join(tables)}: every organization would see the rows of all."
            " Restore what the migrations made (accounts/row_security.py) before the next start"
        )
