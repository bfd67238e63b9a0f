"""The columns, as Spark's types: all that there are, and those of a query.

Spark passes no list of needed columns to a Python source, so a query names them: option `columns`, `includeHeaders`, or
a schema of its own (`.schema("data BINARY")`).
"""

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import Options
from pyspark_jetstream.values import VALUE

if TYPE_CHECKING:
    import pyarrow as pa

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
HEADER = StructType([StructField("name", StringType()), StructField("value", StringType())])
MORE = [StructField("time_ns", LongType()), StructField("header_list", ArrayType(HEADER))]
FIELDS = {field.name: field for field in [*SCHEMA.fields, STREAM, *MORE]}


def schema_of(options: Options) -> StructType:
    """Return the schema of the columns of a query. Raises BadOptionError for a schema that gives no columns."""
    fields = fields_of(options)
    return StructType([fields[name] for name in options.columns])


def columns_of(schema: StructType, options: Options) -> tuple[str, ...]:
    """Return the columns of a schema. Raises BadOptionError when the source does not have them with these types."""
    fields = fields_of(options)
    for field in schema.fields:
        known = fields.get(field.name)
        if known is None or known.dataType.simpleString() != field.dataType.simpleString():
            raise BadOptionError(
                f"the source has no column {field.name} {field.dataType.simpleString()}; its columns are "
                f"{StructType(list(fields.values())).simpleString()}"
            )
    return tuple(schema.fieldNames())


def fields_of(options: Options) -> dict[str, StructField]:
    """Return all columns that a query with these options may have."""
    fields = {**FIELDS, **{name: StructField(name, StringType()) for name, _ in options.tokens}}
    if options.decoding is not None:
        from pyspark_jetstream.typed.decoding import decoder_of  # noqa: PLC0415  (pyarrow: only where it is needed)

        fields[VALUE] = StructField(VALUE, spark_type(decoder_of(options.decoding.schema).type))
    return fields


def spark_type(kind: "pa.DataType") -> DataType:
    """Return the type in Spark of a type of `typed`."""
    import pyarrow.types as pt  # noqa: PLC0415  (pyarrow: only where it is needed)

    if pt.is_struct(kind):
        return StructType([StructField(field.name, spark_type(field.type)) for field in kind])
    if pt.is_map(kind):
        return MapType(StringType(), spark_type(kind.item_type))
    if pt.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    if pt.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return SCALARS[str(kind)]


SCALARS: dict[str, DataType] = {
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bool": BooleanType(),
    "string": StringType(),
    "binary": BinaryType(),
}
