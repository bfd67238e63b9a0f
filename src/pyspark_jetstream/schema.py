"""The columns, as Spark's types: all that there are, and those of a query.

Spark passes no list of needed columns to a Python source, so a query names them: option `columns`, `includeHeaders`, or
a schema of its own (`.schema("data BINARY")`).
"""

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_jetstream.errors import BadOptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = StructType(
    [
        StructField("stream_seq", LongType()),
        StructField("time", TimestampType()),
        StructField("subject", StringType()),
        StructField("headers", MapType(StringType(), ArrayType(StringType()))),
        StructField("data", BinaryType()),
    ]
)
STREAM = StructField("stream", StringType())
FIELDS = {field.name: field for field in [*SCHEMA.fields, STREAM]}


def schema_of(columns: "Sequence[str]") -> StructType:
    """Return the schema of these columns."""
    return StructType([FIELDS[name] for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a schema. Raises BadOptionError when the source does not have them with these types."""
    for field in schema.fields:
        known = FIELDS.get(field.name)
        if known is None or known.dataType.simpleString() != field.dataType.simpleString():
            raise BadOptionError(
                f"the source has no column {field.name} {field.dataType.simpleString()}; its columns are "
                f"{schema_of(tuple(FIELDS)).simpleString()}"
            )
    return tuple(schema.fieldNames())
