"""Values for schemas, checked with a JSON schema validator."""

import json

import jsonschema
import pytest

from practice.schema import make_value

SCHEMAS = [
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
    {
        "type": "object",
        "properties": {"unit": {"enum": ["c", "f"]}, "kind": {"const": 7}},
        "required": ["unit"],
    },
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 4}},
        "required": ["n"],
    },
    {"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}}},
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "multipleOf": 7, "minimum": 8}},
        "required": ["n"],
    },
    {"type": "object", "properties": {"n": {"type": "integer", "maximum": -5}}, "required": ["n"]},
    {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMaximum": 1, "minimum": 0}}},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 3},
    {"type": "array", "items": {"type": ["null", "string"]}, "maxItems": 1},
    {"type": "array"},
    {"type": "string", "minLength": 20, "maxLength": 25},
    {"type": "string", "maxLength": 3},
    {"type": "string", "format": "date-time"},
    {"type": "null"},
    {
        "anyOf": [
            {"type": "null"},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ]
    },
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    {
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        "type": "object",
        "properties": {
            "from": {"$ref": "#/$defs/point"},
            "path": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        },
        "required": ["from", "path"],
    },
    {"required": ["a", "b"]},
    {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_the_value_fits_its_schema(schema: dict[str, object]) -> None:
    for seed in (b"a", b"b", b"c", b"d"):
        jsonschema.validate(make_value(schema, seed), schema)


def test_the_same_seed_gives_the_same_value() -> None:
    schema = {"enum": list(range(1000))}
    assert make_value(schema, b"a") == make_value(schema, b"a")
    assert len({make_value(schema, bytes([seed])) for seed in range(20)}) > 5


def test_a_schema_that_holds_itself_ends() -> None:
    tree: dict[str, object] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name"],
    }
    jsonschema.validate(make_value(tree, b"a"), tree)
    assert make_value({"$ref": "#"}, b"a") == {}
    assert make_value({"allOf": [{"$ref": "#"}]}, b"a") is not None


@pytest.mark.parametrize("schema", [None, [], "x", True, {"type": 5}, {"enum": "x"}, {"$ref": "#/none"}])
def test_what_is_no_schema_gives_an_empty_object(schema: object) -> None:
    assert make_value(schema, b"a") == {}
