"""Serializer fields of the control API: amounts as decimal strings, times in UTC; bodies without unknown fields."""

from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.amounts import decimal_string, nano_of

__all__ = ["AmountField", "BodySerializer", "MomentField"]

_AMOUNT = {"type": "string", "pattern": r"^-?\d+(\.\d{1,9})?$", "examples": ["0.0123"]}


@extend_schema_field(_AMOUNT)
class AmountField(serializers.Field):
    """Nano-units inside, a decimal string without trailing zeros outside. A JSON number is taken as it is written."""

    default_error_messages = {
        "invalid": _(
            "Must be an amount of 0 or more with at most 9 digits after the point, as a decimal string."
        )
    }

    def to_representation(self, value: int) -> str:
        return decimal_string(value)

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, str | int | float):
            self.fail("invalid")
        try:
            return nano_of(f"{Decimal(repr(data)):f}" if isinstance(data, float) else str(data))
        except (ValueError, ArithmeticError):
            self.fail("invalid")


class MomentField(serializers.DateTimeField):
    """A time in UTC, `Z` at its end. One that comes in without an offset is read in UTC."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(default_timezone=UTC, **kwargs)


class BodySerializer(serializers.Serializer):
    """A body that is sent to us. A field it does not know is refused: a limit with a typo must not be no limit."""

    def also_known(self) -> tuple[str, ...]:
        """Names that are no fields and are dealt with in `validate`."""
        return ()

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [name for name in data if name not in self.fields and name not in self.also_known()]
            if unknown:
                raise serializers.ValidationError({name: [_("There is no such field.")] for name in unknown})
        return super().to_internal_value(data)
