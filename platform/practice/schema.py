"""Pure. A value that fits a JSON schema, for tool arguments and JSON answers.

Covers what tool schemas use: types and lists of types, enum, const, default, properties, items, local `$ref`,
allOf/anyOf/oneOf, bounds of numbers, strings and arrays, common string formats. A `pattern` is not solved.
The same seed gives the same value. Nesting is followed eight levels deep; deeper values are left out or null.
"""

from hashlib import blake2b

MAX_DEPTH = 8
MAX_ITEMS = 8

_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "practice@example.com",
    "uri": "https://example.com/practice",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
}


def make_value(schema: object, seed: bytes) -> object:
    """Pure. A value that fits the schema; `{}` where the schema says nothing."""
    return _Maker(schema, seed).make(schema, 0)


class _Maker:
    def __init__(self, root: object, seed: bytes) -> None:
        self._root = root
        self._seed = seed
        self._drawn = 0

    def make(self, schema: object, depth: int) -> object:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {} if depth == 0 else None
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        choices = schema.get("enum")
        if isinstance(choices, list) and choices:
            return choices[self._draw(len(choices))]
        if "default" in schema:
            return schema["default"]
        return self._make_typed(schema, depth)

    def _make_typed(self, schema: dict[str, object], depth: int) -> object:
        match _name_type(schema):
            case "object":
                return self._make_object(schema, depth)
            case "array":
                return self._make_array(schema, depth)
            case "string":
                return self._make_string(schema)
            case "integer":
                return int(self._make_number(schema, 1))
            case "number":
                return self._make_number(schema, 0.5)
            case "boolean":
                return bool(self._draw(2))
            case "null":
                return None
        return {} if depth == 0 else "practice"

    def _make_object(self, schema: dict[str, object], depth: int) -> dict[str, object]:
        properties = schema.get("properties")
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        if not isinstance(properties, dict):
            return {str(name): "practice" for name in names}
        kept = properties if depth < MAX_DEPTH - 1 else {n: p for n, p in properties.items() if n in names}
        return {name: self.make(part, depth + 1) for name, part in kept.items()}

    def _make_array(self, schema: dict[str, object], depth: int) -> list[object]:
        least = _number(schema, "minItems", 1)
        most = _number(schema, "maxItems", MAX_ITEMS)
        if depth >= MAX_DEPTH - 1 and least <= 1:
            return []
        length = int(min(max(least, 1), most, MAX_ITEMS))
        return [self.make(schema.get("items", {"type": "string"}), depth + 1) for _ in range(length)]

    def _make_string(self, schema: dict[str, object]) -> str:
        named = _FORMATS.get(str(schema.get("format")))
        if named is not None:
            return named
        least = int(_number(schema, "minLength", 0))
        most = int(_number(schema, "maxLength", 256))
        return "practice".ljust(min(least, 256), ".")[:most]

    def _make_number(self, schema: dict[str, object], step: float) -> float:
        step = _number(schema, "multipleOf", step) or step
        low = _number(schema, "minimum", _number(schema, "exclusiveMinimum", 0) + step)
        if "minimum" not in schema and "exclusiveMinimum" not in schema:
            low = 0
        high = _number(schema, "maximum", _number(schema, "exclusiveMaximum", low + 10 * step) - step)
        first = -(-low // step) * step
        value = first + step * self._draw(5)
        if value <= high:
            return value
        return first if first <= high else high

    def _resolve(self, schema: dict[str, object]) -> dict[str, object]:
        """The schema with its local reference followed and its first alternatives merged in."""
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if isinstance(reference, str):
                schema = {**self._find(reference), **{k: v for k, v in schema.items() if k != "$ref"}}
                continue
            parts = schema.get("allOf")
            several = next(
                (v for k in ("anyOf", "oneOf") if isinstance(v := schema.get(k), list) and v), None
            )
            if isinstance(parts, list) and parts:
                merged: dict[str, object] = {k: v for k, v in schema.items() if k != "allOf"}
                for part in parts:
                    _merge(merged, part)
                schema = merged
            elif several is not None:
                rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
                usable = [s for s in several if isinstance(s, dict) and s.get("type") != "null"]
                _merge(rest, usable[0] if usable else {"type": "null"})
                schema = rest
            else:
                break
        return schema

    def _find(self, reference: str) -> dict[str, object]:
        place = self._root
        for name in reference.removeprefix("#").strip("/").split("/"):
            if name:
                place = (
                    place.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
                )
        return place if isinstance(place, dict) else {}

    def _draw(self, choices: int) -> int:
        self._drawn += 1
        digest = blake2b(self._seed + self._drawn.to_bytes(4, "big"), digest_size=4).digest()
        return int.from_bytes(digest, "big") % choices


def _merge(into: dict[str, object], part: object) -> None:
    if not isinstance(part, dict):
        return
    for key, value in part.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            into[key] = {**old, **value}
        elif isinstance(old, list) and isinstance(value, list):
            into[key] = [*old, *value]
        else:
            into[key] = value


def _name_type(schema: dict[str, object]) -> str:
    named = schema.get("type")
    if isinstance(named, list):
        named = next((name for name in named if name != "null"), "null")
    if isinstance(named, str):
        return named
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else ""


def _number(schema: dict[str, object], key: str, default: float) -> float:
    value = schema.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default
