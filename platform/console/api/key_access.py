"""A key that a program names by its id: found within what the caller may see, and changed."""

from collections.abc import Callable

from django.db import transaction
from django.http import Http404

from accounts.errors import Conflict
from accounts.models import Key, Organization
from accounts.services.keys import KeyTerms, change_key, rename_key, terms_of
from console.api.callers import ApiCaller

__all__ = ["change_found_key", "find_key"]


def find_key(caller: ApiCaller, key_id: int) -> Key:
    """Raises Http404 for a key they may not see, as for one that does not exist."""
    keys = caller.keys().select_related("organization", "member__user")
    key = keys.filter(pk=key_id).first() if key_id < 2**63 else None
    if key is None:
        raise Http404("no such key")
    return key


def change_found_key(
    caller: ApiCaller,
    key_id: int,
    *,
    name: str | None,
    terms: Callable[[KeyTerms, Organization], KeyTerms],
) -> Key:
    """The key of this id under another name (None: its own) and under what `terms` makes of its present ones.

    All of it or nothing. Raises Http404, Conflict for a revoked key, and what the services refuse.
    """
    key = find_key(caller, key_id)
    if key.revoked_at is not None:
        raise Conflict("id", "The key is revoked; it cannot be changed any more.")
    with transaction.atomic():
        changed = terms(terms_of(key), key.organization)
        if name is not None and name != key.name:
            rename_key(acting=caller.acting, key=key, name=name)
        change_key(acting=caller.acting, key=key, terms=changed)
    return key
