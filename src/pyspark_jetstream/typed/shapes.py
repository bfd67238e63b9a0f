"""What values have in common, for all kinds of schemas: a tree of shapes, and the type of each in Arrow. Pure.

Fields of lists and maps have the names that Spark gives them, since Spark compares the types of a task's first batch.
"""

from typing import Any

import attrs
import pyarrow as pa

BIG = pa.decimal128(38, 0)


class MisfitError(ValueError):
    """A payload does not fit; the text has the path of the field and what was expected, and nothing of a value."""


class UnsupportedSchemaError(ValueError):
    """A schema has no type of columns; the text has the path and the reason."""


# A schema of 32 KiB may name a type in many places, each of which has its fields again. Spark plans each field.
SHAPES_MAX = 10_000


@attrs.define(slots=True)
class Budget:
    """How many shapes one schema may still have."""

    left: int = SHAPES_MAX

    def take(self) -> None:
        """One more. Raises UnsupportedSchemaError."""
        self.left -= 1
        if self.left < 0:
            raise UnsupportedSchemaError(
                f"it has more than {SHAPES_MAX:,} fields, with those of the types that it refers to"
            )


@attrs.frozen(slots=True)
class Shape:
    """A type: one of Arrow that has no parts, or an object, a list, a map, or any JSON as text."""

    kind: pa.DataType | None = None
    fields: tuple[tuple[str, "Shape"], ...] = ()  # of an object
    item: "Shape | None" = None  # of a list, or of a map whose keys are text
    is_map: bool = False
    is_text: bool = False  # the JSON of a value whose type is open

    @property
    def type(self) -> pa.DataType:
        """The type in Arrow."""
        if self.kind is not None:
            return self.kind
        if self.fields:
            return pa.struct([pa.field(name, shape.type) for name, shape in self.fields])
        if self.item is not None:
            inner = self.item.type
            return (
                pa.map_(pa.string(), pa.field("value", inner)) if self.is_map else pa.list_(pa.field("element", inner))
            )
        assert self.is_text
        return pa.string()


ANY = Shape(is_text=True)
TEXT = Shape(pa.string())
BYTES = Shape(pa.binary())
LONG = Shape(pa.int64())
INT = Shape(pa.int32())
LARGE = Shape(BIG)
DOUBLE = Shape(pa.float64())
FLOAT = Shape(pa.float32())
FLAG = Shape(pa.bool_())


@attrs.frozen(slots=True)
class Decoded:
    """A column of values; rows that do not fit are null, and named."""

    column: pa.Array
    faults: list[tuple[int, str]]  # the place of a row, and what is wrong


def by_rows(payloads: pa.Array, kind: pa.DataType, value_of: Any) -> Decoded:
    """Convert payload by payload; `value_of(payload)` raises MisfitError."""
    values: list[Any] = []
    faults: list[tuple[int, str]] = []
    for place, payload in enumerate(payloads.to_pylist()):
        try:
            values.append(value_of(payload))
        except MisfitError as error:
            faults.append((place, str(error)))
            values.append(None)
    return Decoded(pa.array(values, kind), faults)
