"""Avro: a payload is one value in the binary encoding, and nothing behind it.

fastavro reads the schema. The bytes are walked here, not decoded: that names the field that does not fit, builds
nothing of what a length promises, and ends after a number of steps. Source: Avro 1.12, "Binary Encoding".
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import fastavro
import orjson
from fastavro.schema import SchemaParseException, UnknownType

from jetraft.store.model.schemas.faults import at
from jetraft.store.model.schemas.rules import BadSchemaError
from jetraft.store.model.schemas.walking import Cursor, Misfit

if TYPE_CHECKING:
    from collections.abc import Callable

    Walk = Callable[[Cursor], None]

NESTING_MAX: Final = 64  # of the schema's own text
INT_BITS: Final = 32
LONG_BITS: Final = 64
FIXED_WIDTHS: Final = {"float": struct.calcsize("<f"), "double": struct.calcsize("<d")}
BAD: Final = (SchemaParseException, UnknownType, KeyError, TypeError, ValueError, AttributeError)


@attrs.frozen(slots=True)
class AvroJudge:
    """One schema."""

    _walk: Walk

    @classmethod
    def of(cls, text: str) -> Self:
        """Compile. Raises BadSchemaError."""
        try:
            schema = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise BadSchemaError(f"not JSON at character {error.pos}") from error
        _check_nesting(schema)
        try:
            parsed = fastavro.parse_schema(schema, _force=True)  # whatever it says of itself
        except BAD as error:
            raise BadSchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
        return cls(_Walks().of(parsed))

    def fault(self, payload: bytes) -> str:
        """See `compiled.PayloadJudge`."""
        cursor = Cursor(payload)
        try:
            self._walk(cursor)
        except Misfit as misfit:
            return at(misfit.pointer, misfit.expected)
        left = cursor.end - cursor.pos
        return f"{left} bytes too many behind the value" if left else ""


def _check_nesting(value: Any, depth: int = 0) -> None:
    if depth > NESTING_MAX:
        raise BadSchemaError(f"nested deeper than {NESTING_MAX}")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_nesting(inner, depth + 1)


class _Walks:
    """Makes walks of a parsed schema; names may be used before their walk is complete."""

    def __init__(self) -> None:
        self._named: dict[str, Walk] = {}

    def of(self, schema: Any) -> Walk:
        """The walk over a value of this schema."""
        if isinstance(schema, list):
            return partial(_union, [self.of(branch) for branch in schema])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):  # a schema around a schema
            return self.of(kind)
        if kind in ("array", "map"):
            return self._many(schema, kind)
        if isinstance(schema, dict) and kind in ("record", "error", "enum", "fixed"):
            return self._define(schema, kind)
        return _PRIMITIVES.get(kind) or partial(self._by_name, kind)

    def _many(self, schema: dict[str, Any], kind: str) -> Walk:
        if kind == "map":
            return partial(_blocks, _string, self.of(schema["values"]), 0)
        items = schema["items"]
        return partial(_blocks, None, self.of(items), FIXED_WIDTHS.get(_primitive(items), 0))

    def _define(self, schema: dict[str, Any], kind: str) -> Walk:
        if kind == "enum":
            walk: Walk = partial(_enum, len(schema["symbols"]))
        elif kind == "fixed":
            if not isinstance(schema["size"], int) or schema["size"] < 0:
                raise BadSchemaError("the size of a fixed is a number of bytes")
            walk = partial(_skip, schema["size"], f"fixed of {schema['size']} bytes")
        else:
            walk = partial(_record, [(field["name"], self.of(field["type"])) for field in schema["fields"]])
        self._named[schema["name"]] = walk
        return walk

    def _by_name(self, name: str, cursor: Cursor) -> None:
        self._named[name](cursor)


def _primitive(schema: Any) -> str:
    found = schema["type"] if isinstance(schema, dict) else schema
    return found if isinstance(found, str) else ""


def _null(cursor: Cursor) -> None:
    cursor.step()


def _boolean(cursor: Cursor) -> None:
    cursor.step()
    if cursor.take(1, "boolean") not in (b"\x00", b"\x01"):
        raise Misfit("expected boolean")


def _number(bits: int, expected: str, cursor: Cursor) -> None:
    cursor.step()
    if cursor.varint(expected) >> bits:
        raise Misfit(f"expected {expected}")


def _skip(size: int, expected: str, cursor: Cursor) -> None:
    cursor.step()
    cursor.skip(size, expected)


def _bytes(cursor: Cursor) -> None:
    cursor.step()
    cursor.skip(_length(cursor, "bytes"), "bytes")


def _string(cursor: Cursor) -> None:
    cursor.step()
    cursor.text(_length(cursor, "string"))


def _enum(count: int, cursor: Cursor) -> None:
    cursor.step()
    if not 0 <= _long(cursor, "enum") < count:
        raise Misfit(f"expected one of {count} symbols")


def _union(branches: list[Walk], cursor: Cursor) -> None:
    cursor.step()
    index = _long(cursor, "union")
    if not 0 <= index < len(branches):
        raise Misfit(f"expected one of {len(branches)} branches")
    branches[index](cursor)


def _record(fields: list[tuple[str, Walk]], cursor: Cursor) -> None:
    cursor.step()
    with cursor.inside:
        for name, walk in fields:
            try:
                walk(cursor)
            except Misfit as misfit:
                misfit.within(name)
                raise


def _blocks(key: Walk | None, item: Walk, width: int, cursor: Cursor) -> None:
    """An array, or a map with keys; items of a fixed width are passed over together."""
    cursor.step()
    place = 0
    with cursor.inside:
        while count := _long(cursor, "array or map"):
            size = None
            if count < 0:
                count, size = -count, _length(cursor, "block")
            begun = cursor.pos
            if count > cursor.end - cursor.pos:  # of items without bytes there would be any number
                raise Misfit("has more items than bytes")
            if width:
                cursor.skip(count * width, "items")
            for _ in range(0 if width else count):
                try:
                    if key is not None:
                        key(cursor)
                    item(cursor)
                except Misfit as misfit:
                    misfit.within(place)
                    raise
                place += 1
            if size is not None and cursor.pos - begun != size:
                raise Misfit("has a block of another size than it says")


def _length(cursor: Cursor, expected: str) -> int:
    found = _long(cursor, expected)
    if found < 0:
        raise Misfit(f"expected {expected}")
    return found


def _long(cursor: Cursor, expected: str) -> int:
    found = cursor.varint(expected)
    if found >> LONG_BITS:
        raise Misfit(f"expected {expected}")
    return (found >> 1) ^ -(found & 1)


_PRIMITIVES: Final[dict[str, Walk]] = {
    "null": _null,
    "boolean": _boolean,
    "int": partial(_number, INT_BITS, "int"),
    "long": partial(_number, LONG_BITS, "long"),
    **{name: partial(_skip, width, name) for name, width in FIXED_WIDTHS.items()},
    "bytes": _bytes,
    "string": _string,
}
