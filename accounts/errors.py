"""Why a service refused, in one small family that pages, APIs and commands translate for their reader.

    ServiceError
    ├── NotAllowed   whoever acts may not do this here
    ├── Invalid      a value cannot be taken; `field` says which
    └── Conflict     it contradicts what there is already (a name taken); `field` says which value

The text is a sentence for a person and names nobody else's things.
"""

__all__ = ["Conflict", "Invalid", "NotAllowed", "ServiceError"]


class ServiceError(Exception):
    """A service refused, and nothing was changed."""


class NotAllowed(ServiceError):
    """Whoever acts may not do this here."""


class Invalid(ServiceError):
    """The value given for `field` cannot be taken."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Conflict(Invalid):
    """The value given for `field` contradicts what there is already."""
