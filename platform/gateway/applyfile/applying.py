"""Brings the database to what a file declares, in one transaction: all of it or nothing."""

from django.db import connection, transaction

from accounts import scope
from gateway.applyfile.declared import Declared
from gateway.applyfile.outcome import Outcome
from gateway.applyfile.problems import Problems
from gateway.applyfile.steps.models import apply_models, prune_models
from gateway.applyfile.steps.organizations import apply_organizations, prune_organizations
from gateway.applyfile.steps.upstreams import apply_upstreams, prune_upstreams

__all__ = ["apply"]


def apply(declared: Declared, *, problems: Problems, dry_run: bool = False, prune: bool = False) -> Outcome:
    """Apply and say what changed. With `dry_run` everything is tried and then taken back.

    With `prune`, what the sections of the file no longer name is switched off or revoked, never deleted; a
    section that is not in the file is left alone. Raises FileRefused, with nothing changed, if the database
    refuses any of it.
    """
    outcome = Outcome()
    with scope.site("apply file"), transaction.atomic():
        with connection.cursor() as cursor:
            # Two at once would each see half of the other's work.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('gateway.apply'))")
        if declared.upstreams is not None:
            apply_upstreams(declared.upstreams, outcome)
        if declared.models is not None:
            apply_models(declared.models, declared.accounts_of, outcome)
        if declared.organizations is not None:
            apply_organizations(declared.organizations, outcome, prune=prune)
        if prune:
            _prune(declared, outcome)
        # Raised inside the transaction, so that nothing stays.
        problems.refuse_if_any()
        if dry_run:
            transaction.set_rollback(True)
    return outcome


def _prune(declared: Declared, outcome: Outcome) -> None:
    if declared.upstreams is not None:
        prune_upstreams(declared.upstreams, outcome)
    if declared.models is not None:
        prune_models(declared.models, outcome)
    if declared.organizations is not None:
        prune_organizations(declared.organizations, outcome)
