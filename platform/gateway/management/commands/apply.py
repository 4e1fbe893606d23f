"""`manage.py apply FILE`: brings the database to what a YAML file declares. Idempotent."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from gateway import env
from gateway.applyfile.applying import apply
from gateway.applyfile.outcome import Outcome
from gateway.applyfile.problems import FileRefused, Problems
from gateway.applyfile.reading import read_declared
from gateway.applyfile.secrets import SecretSource

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Bring the database to what a YAML file declares: upstreams, models, organizations."
    # Not run: they import every page and take longer than the rest.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the YAML file")
        parser.add_argument("--dry-run", action="store_true", help="show the difference, write nothing")
        parser.add_argument(
            "--prune", action="store_true", help="revoke and switch off what the file does not name"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Exits with 1 if anything in the file is wrong: all of it is said, and nothing is changed."""
        try:
            outcome = self._apply(options["file"], dry_run=options["dry_run"], prune=options["prune"])
        except FileRefused as exc:
            for line in exc.problems:
                self.stderr.write(line, self.style.ERROR)
            raise SystemExit(1) from exc
        except OperationalError as exc:
            raise CommandError(f"the database does not answer: {exc}", returncode=3) from exc
        self._show(options["file"], outcome, dry_run=options["dry_run"])

    def _apply(self, name: str, *, dry_run: bool, prune: bool) -> Outcome:
        path = Path(name)
        problems = Problems(name)
        try:
            data = path.read_bytes()
        except OSError as exc:
            problems.add(0, 0, "", f"cannot be read: {exc.strerror}")
            raise FileRefused(problems.shown()) from exc
        secrets = SecretSource(env.named, path.absolute().parent)
        declared = read_declared(data, problems=problems, secrets=secrets)
        return apply(declared, problems=problems, dry_run=dry_run, prune=prune)

    def _show(self, name: str, outcome: Outcome, *, dry_run: bool) -> None:
        for line in outcome.lines:
            self.stdout.write(line)
        for note in outcome.notes:
            self.stdout.write(f"note: {name}: {note}")
        if not outcome.lines:
            self.stdout.write("nothing to change")
        if dry_run:
            self.stdout.write("dry run: nothing was written")
            return
        for label, clear in outcome.new_keys:
            self.stdout.write(f"key {label}, shown this once: {clear}")
