"""The shape of the documents that a JSON schema admits (drafts 4 to 2020-12). Pure.

A field has a type where the schema fixes one; one whose type is open (several types, `oneOf` of objects, a schema that
contains itself, no `type` at all) has its JSON as text. What a schema demands beyond types (patterns, bounds, required
fields) is not looked at: every field may be null.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark_jetstream.typed.shapes import ANY, DOUBLE, FLAG, LARGE, LONG, TEXT, Budget, Shape, UnsupportedSchemaError

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
DEPTH_MAX = 32  # the server judges no payload that is nested deeper
SCALARS = {"string": TEXT, "integer": LONG, "number": DOUBLE, "boolean": FLAG}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def json_shape(text: str) -> Shape:
    """Return the shape of the documents of a schema. Raises UnsupportedSchemaError."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnsupportedSchemaError(f"not JSON: {error}") from error
    found = _Shapes(schema).of(schema, ("#",))
    if not found.fields:
        raise UnsupportedSchemaError("its documents are not objects with named fields")
    return found


class _Shapes:
    """Makes shapes of the parts of one schema."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._budget = Budget()

    def of(self, schema: Any, within: tuple[str, ...]) -> Shape:
        """The shape of a part; `within` are the references that led to it, and a mark for each level."""
        self._budget.take()
        if not isinstance(schema, Mapping) or len(within) > DEPTH_MAX:
            return ANY
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]), within)
        for word in ("anyOf", "oneOf"):
            if word in schema and "properties" not in schema:
                branches = [one for one in schema[word] if not _is_null(one)]
                return self.of(branches[0], (*within, "")) if len(branches) == 1 else ANY
        if "allOf" in schema:
            parts = schema["allOf"]
            return self.of(parts[0], (*within, "")) if len(parts) == 1 and "properties" not in schema else ANY
        return self._typed(schema, within)

    def _typed(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> Shape:  # noqa: PLR0911  (a line for each type)
        kinds = _types(schema)
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if len(kinds) != 1:
            return ANY
        (kind,) = kinds
        if kind == "integer":
            bounds = [schema[word] for word in BOUNDS if isinstance(schema.get(word), int | float)]
            return LONG if all(LONG_MIN <= bound <= LONG_MAX for bound in bounds) else LARGE
        if kind in SCALARS:
            return SCALARS[kind]
        if kind == "array":
            items = schema.get("items")
            is_tuple = "prefixItems" in schema or not isinstance(items, Mapping)
            return ANY if is_tuple else Shape(item=self.of(items, (*within, "")))
        if kind != "object":
            return ANY
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and properties:
            return Shape(fields=tuple((str(name), self.of(one, (*within, ""))) for name, one in properties.items()))
        values = schema.get("additionalProperties")
        is_map = isinstance(values, Mapping) and "patternProperties" not in schema
        return Shape(item=self.of(values, (*within, "")), is_map=True) if is_map else ANY

    def _referred(self, reference: str, within: tuple[str, ...]) -> Shape:
        """What a reference within the schema leads to; one that leads to itself is open."""
        if not reference.startswith("#") or reference in within:
            return ANY
        found = self._whole
        for token in reference[1:].split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return ANY
            found = found[name]
        return self.of(found, (*within, reference))


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (schema.get("type") == "null" or schema.get("const", "") is None)


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The types that a schema admits beside null, as far as it says so."""
    given = schema.get("type")
    if given is None and ("enum" in schema or "const" in schema):
        values = schema.get("enum", [schema.get("const")])
        return {_type_of(value) for value in values if value is not None}
    if given is None:
        return {"object"} if "properties" in schema else set()
    return {str(one) for one in ([given] if isinstance(given, str) else given)} - {"null"}


def _type_of(value: Any) -> str:
    names = {bool: "boolean", str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "")
