"""Columns of Avro values: fastavro reads the payloads one by one, Arrow makes the columns.

A payload does not say by which schema it was written. One of another schema is found where it ends too early or too
late, or has a value that cannot be; it may also be read as something else. So a query whose stream gets another Avro
schema stops (`StreamPlanner`). Logical types are the numbers and bytes that they are made of.
"""

import io
import json
from typing import Any

import attrs
import fastavro

from pyspark_jetstream.typed import shapes
from pyspark_jetstream.typed.row_decoder import RowDecoder
from pyspark_jetstream.typed.shapes import Budget, MisfitError, Shape, UnsupportedSchemaError

SCALARS = {
    "boolean": shapes.FLAG,
    "int": shapes.INT,
    "long": shapes.LONG,
    "float": shapes.FLOAT,
    "double": shapes.DOUBLE,
    "bytes": shapes.BYTES,
    "string": shapes.TEXT,
    "enum": shapes.TEXT,
    "fixed": shapes.BYTES,
}
WIDER = {frozenset({"int", "long"}): shapes.LONG, frozenset({"float", "double"}): shapes.DOUBLE}
BAD = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError, ValueError)


def avro_decoder(text: str) -> RowDecoder:
    """Return what decodes by a schema; empty payloads are null. Raises UnsupportedSchemaError."""
    try:
        schema = _plain(json.loads(text))
        parsed = fastavro.parse_schema(schema, _force=True)
    except (*BAD, RecursionError) as error:
        raise UnsupportedSchemaError(f"not an Avro schema: {error}") from error
    shape = _Shapes().of(schema, "", ())
    if not shape.fields:
        raise UnsupportedSchemaError("it is not of a record with fields")

    def read(payload: bytes) -> Any:
        if not payload:
            return None
        source = io.BytesIO(payload)
        found = fastavro.schemaless_reader(source, parsed, None)
        if left := len(payload) - source.tell():
            raise MisfitError(f"{left} bytes too many behind the Avro value")
        return found

    return RowDecoder(type=shape.type, what="a value of the Avro schema", read=read)


def _plain(schema: Any) -> Any:
    """The schema without logical types: fastavro would round their values."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if isinstance(schema, dict):
        return {
            name: _plain(one) if name != "default" else one for name, one in schema.items() if name != "logicalType"
        }
    return schema


@attrs.define
class _Shapes:
    """Makes shapes of a schema; names stand for what was defined before them."""

    _named: dict[str, Any] = attrs.Factory(dict)
    _budget: Budget = attrs.Factory(Budget)

    def of(self, schema: Any, path: str, within: tuple[str, ...], space: str = "") -> Shape:  # noqa: PLR0911  (a line for each kind)
        """The shape of a part; `within` are the records that it is part of, `space` their namespace."""
        self._budget.take()
        if isinstance(schema, list):
            return self._union(schema, path, within, space)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.of(kind, path, within, space)
        if kind == "array":
            return Shape(item=self.of(schema["items"], f"{path}/0", within, space))
        if kind == "map":
            return Shape(item=self.of(schema["values"], f"{path}/*", within, space), is_map=True)
        if isinstance(schema, dict) and "name" in schema:
            space = schema.get("namespace", space)
            name = full_name(schema["name"], space)
            self._named[name] = (schema, name.rpartition(".")[0])
        if kind in {"record", "error"}:
            return self._record(schema, path, (*within, name), space)
        if kind in SCALARS:
            return SCALARS[kind]
        name = kind if kind in self._named else full_name(str(kind), space)
        if name not in self._named or name in within:
            raise UnsupportedSchemaError(f"{path or '/'}: the record {name} contains itself")
        definition, its_space = self._named[name]
        return self.of(definition, path, within, its_space)

    def _record(self, schema: dict[str, Any], path: str, within: tuple[str, ...], space: str) -> Shape:
        if not schema["fields"]:
            raise UnsupportedSchemaError(f"{path or '/'}: a record without fields")
        parts = [(one["name"], one["type"], f"{path}/{one['name']}") for one in schema["fields"]]
        return Shape(fields=tuple((name, self.of(kind, place, within, space)) for name, kind, place in parts))

    def _union(self, branches: list[Any], path: str, within: tuple[str, ...], space: str) -> Shape:
        others = [one for one in branches if one != "null"]
        if len(others) == 1:
            return self.of(others[0], path, within, space)
        names = frozenset(one for one in others if isinstance(one, str))
        if len(names) == len(others) and names in WIDER:
            return WIDER[names]
        raise UnsupportedSchemaError(f"{path or '/'}: a union of several types")


def full_name(name: str, space: str) -> str:
    """The name with its namespace."""
    return name if "." in name or not space else f"{space}.{name}"
