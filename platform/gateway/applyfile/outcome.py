"""What applying a file did: the difference, line by line, and the keys that were made."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import transaction

from accounts.errors import Invalid, ServiceError
from gateway.applyfile.places import Place

__all__ = ["Outcome", "refusals_at"]


@dataclass(slots=True)
class Outcome:
    """`lines` is the difference (`+` made, `~` changed, `-` switched off), `notes` what a person should know.

    `new_keys` are generated keys in the clear, to be shown once.
    """

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    new_keys: list[tuple[str, str]] = field(default_factory=list, repr=False)

    def note(self, place: Place, message: str) -> None:
        self.notes.append(f"line {place.node.start_mark.line + 1}: {place.path}: {message}")


@contextmanager
def refusals_at(place: Place) -> Iterator[None]:
    """Run the block in a savepoint; a service's refusal becomes a problem at `place`, or at the field it
    names.
    """
    try:
        with transaction.atomic():
            yield
    except ServiceError as exc:
        (place.at(exc.field) if isinstance(exc, Invalid) else place).refuse(str(exc))
