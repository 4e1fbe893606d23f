"""The two scopes in which an organization's rows may be read or written, and the only ways into them.

`organization(id)` sees the rows of one organization, `site(reason)` sees all of them (sign-in, key look-up,
snapshot, operators' pages, tasks). Both open a transaction and set a transaction-local setting that the
row-level security policies of every organization table read, so that a query without its filter still returns
nothing foreign, also behind a transaction pooler. Managers refuse to build a query outside a scope
(`UnscopedQuery`).

A scope inside another one of the same kind and value is a no-op. `site` inside `organization` is refused: a
page of one organization has no business widening its own view.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db import connection, models, transaction

__all__ = ["ScopeError", "ScopedManager", "UnscopedQuery", "current", "organization", "site"]

_current: ContextVar[tuple[str, str] | None] = ContextVar("scope", default=None)


class ScopeError(RuntimeError):
    """A scope was entered that may not be entered here."""


class UnscopedQuery(ScopeError):
    """A query on an organization's table was built outside a scope."""


def current() -> tuple[str, str] | None:
    """The scope in force as (kind, value), or None outside any."""
    return _current.get()


@contextmanager
def organization(organization_id: int) -> Iterator[None]:
    """Run the block in one transaction that sees only the rows of this organization."""
    with _enter("organization", str(int(organization_id))):
        yield


@contextmanager
def site(reason: str) -> Iterator[None]:
    """Run the block in one transaction that sees the rows of all organizations. `reason` names why."""
    if not reason:
        raise ScopeError("a site scope needs a reason")
    with _enter("site", reason):
        yield


@contextmanager
def _enter(kind: str, value: str) -> Iterator[None]:
    outer = _current.get()
    if outer is not None and outer[0] == kind and (kind == "site" or outer[1] == value):
        yield
        return
    if outer is not None and outer[0] == "organization":
        raise ScopeError(f"cannot enter {kind} {value!r} inside organization {outer[1]}")
    with transaction.atomic():
        _set(kind, value)
        token = _current.set((kind, value))
        try:
            yield
        finally:
            _current.reset(token)
            if outer is not None and not connection.needs_rollback:
                _set(*outer)


def _set(kind: str, value: str) -> None:
    org, reason = (value, "") if kind == "organization" else ("", value)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('app.org', %s, true), set_config('app.site', %s, true)", [org, reason]
        )


class ScopedManager(models.Manager[Any]):
    """Default manager of every organization table: refuses to build a query outside a scope."""

    def get_queryset(self) -> models.QuerySet[Any]:
        if _current.get() is None:
            raise UnscopedQuery(f"{self.model.__name__} was queried outside a scope (accounts.scope)")
        return super().get_queryset()
