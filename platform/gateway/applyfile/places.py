"""Pure. A node of the file with its path: typed readers that note what is wrong and go on.

A reader that refuses notes the problem and returns its default, so that one look finds everything; whoever
reads a file calls `Problems.refuse_if_any` before using what was read. `null` is the same as an absent field.
"""

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from decimal import Decimal

import yaml

from gateway.applyfile.problems import Problems

__all__ = ["Place", "Table", "open_table"]

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp"))
_WHOLE = re.compile(r"0|[1-9][0-9]{0,18}")
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Place:
    """One node, and how it is called: `organizations[0].keys[0].limits.rpm`."""

    node: yaml.Node = field(repr=False)
    path: str
    problems: Problems = field(repr=False)

    def refuse(self, message: str) -> None:
        mark = self.node.start_mark
        self.problems.add(mark.line + 1, mark.column + 1, self.path, message)

    def at(self, field_name: str) -> "Place":
        """The place of an inner field, or the nearest one round it: where an error of a service belongs."""
        here = self
        for name in field_name.split("."):
            inner = [value for key, value in _pairs(here.node) if key == name]
            if not inner:
                return here
            here = Place(inner[0], f"{here.path}.{name}" if here.path else name, self.problems)
        return here

    @property
    def is_null(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == f"{_TAG}null"

    @property
    def is_unused(self) -> bool:
        """Whether it says nothing: null, false or empty."""
        if isinstance(self.node, yaml.ScalarNode):
            is_false = self.node.tag == f"{_TAG}bool" and self.node.value.lower() in (
                "false",
                "no",
                "off",
                "n",
            )
            return self.is_null or is_false
        return not self.node.value

    def scalar(self, must: str) -> str | None:
        """What was written, as text, whatever type YAML sees in it."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.tag in _PLAIN_TAGS and not self.is_null:
            return str(self.node.value)
        self.refuse(f"must be {must}, not {self._shape()}")
        return None

    def text(self, must: str = "text") -> str | None:
        value = self.scalar(must)
        if value is not None and not value.strip():
            self.refuse(f"must be {must}, not empty")
            return None
        return value

    def secret(self) -> str | None:
        """As `text`, but never repeated in an error."""
        if not isinstance(self.node, yaml.ScalarNode) or self.is_null or not self.node.value.strip():
            self.refuse("must be env:NAME, file:PATH or the secret itself")
            return None
        return str(self.node.value)

    def whole(self, least: int, most: int, must: str) -> int | None:
        value = self.scalar(must)
        if value is None:
            return None
        if not _WHOLE.fullmatch(value) or not least <= int(value) <= most:
            self.refuse(f"must be {must}, not {self._quoted(value)}")
            return None
        return int(value)

    def flag(self) -> bool | None:
        value = self.scalar("true or false")
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            self.refuse(f"must be true or false, not {self._quoted(value)}")
            return None
        return value.lower() == "true"

    def money(self, digits: int) -> Decimal | None:
        """An exact amount: a quoted decimal, or a whole number. An unquoted fraction would be a float to
        YAML.
        """
        must = 'an amount in quotes such as "1.25"'
        value = self.scalar(must)
        if value is None:
            return None
        if self.node.tag == f"{_TAG}float":
            self.refuse(f'must be quoted, so that it stays exact: "{value[:_SHOWN]}"')
            return None
        return self._decimal(value, digits, must)

    def factor(self, digits: int) -> Decimal | None:
        """An exact factor, as it is written; it need not be quoted."""
        must = "a number from 0 such as 0.85"
        value = self.scalar(must)
        return None if value is None else self._decimal(value, digits, must)

    def seconds(self) -> float | None:
        """A length of time in seconds."""
        must = "a number of seconds above 0"
        value = self.scalar(must)
        number = None if value is None else self._decimal(value, 3, must)
        if number is not None and number <= 0:
            self.refuse(f"must be {must}, not {self._quoted(str(value))}")
            return None
        return None if number is None else float(number)

    def choice(self, allowed: Collection[str], later: Collection[str] = ()) -> str | None:
        value = self.scalar(f"one of {', '.join(allowed)}")
        if value is None or value in allowed:
            return value
        if value in later:
            self.refuse(f"{value} is not supported yet; this version takes {', '.join(allowed)}")
        else:
            self.refuse(f"must be one of {', '.join(allowed)}, not {self._quoted(value)}")
        return None

    def items(self, must: str = "a list") -> list["Place"]:
        if self.is_null:
            return []
        if not isinstance(self.node, yaml.SequenceNode):
            self.refuse(f"must be {must}, not {self._shape()}")
            return []
        return [Place(node, f"{self.path}[{n}]", self.problems) for n, node in enumerate(self.node.value)]

    def entries(self, must: str = "a mapping") -> list[tuple[str, "Place"]]:
        """The pairs of a mapping; a key that stands there twice, or is no text, is refused."""
        if self.is_null:
            return []
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse(f"must be {must}, not {self._shape()}")
            return []
        found: dict[str, Place] = {}
        for key, value in self.node.value:
            if not isinstance(key, yaml.ScalarNode):
                Place(key, self.path, self.problems).refuse("a field's name must be text")
                continue
            inner = Place(value, f"{self.path}.{key.value}" if self.path else key.value, self.problems)
            if key.value in found:
                first = found[key.value].node.start_mark.line + 1
                Place(key, inner.path, self.problems).refuse(f"stands here twice (first on line {first})")
                continue
            found[key.value] = inner
        return list(found.items())

    def _decimal(self, value: str, digits: int, must: str) -> Decimal | None:
        if not _DECIMAL.fullmatch(value):
            self.refuse(f"must be {must}, not {self._quoted(value)}")
            return None
        if len(value.partition(".")[2].rstrip("0")) > digits:
            self.refuse(f"must have at most {digits} digits after the point")
            return None
        return Decimal(value)

    def _quoted(self, value: str) -> str:
        return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")

    def _shape(self) -> str:
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list"
        return "empty" if self.is_null else "a value with a tag"


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping of known fields. Readers return None for a field that is absent, null or was refused."""

    place: Place
    fields: dict[str, Place]

    def get(self, name: str) -> Place | None:
        found = self.fields.get(name)
        return None if found is None or found.is_null else found

    def need(self, name: str) -> Place | None:
        """As `get`; an absent field is refused."""
        found = self.get(name)
        if found is None:
            self.place.refuse(f"needs a field {name}")
        return found


def open_table(place: Place, known: Collection[str], later: Collection[str] = ()) -> Table | None:
    """The mapping at `place`, its unknown fields and those of a later version refused by name; None if it is
    none.
    """
    problems_before = len(place.problems.found)
    fields = {}
    for name, inner in place.entries():
        if name in known:
            fields[name] = inner
        elif name in later:
            if not inner.is_unused:
                inner.refuse("is not supported yet")
        else:
            guess = difflib.get_close_matches(name, [*known, *later], 1)
            hint = f"; did you mean {guess[0]}?" if guess else f"; known are {', '.join(known)}"
            inner.refuse(f"unknown field {name[:_SHOWN]!r}{hint}")
    if not isinstance(place.node, yaml.MappingNode) and len(place.problems.found) > problems_before:
        return None
    return Table(place, fields)


def _pairs(node: yaml.Node) -> list[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
