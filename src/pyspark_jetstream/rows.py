"""Converts columns of bytes to Arrow record batches with Spark's types.

Spark checks the first batch of a task: types, order and nullability must equal those of the schema. Its times have
microseconds, so nanoseconds are truncated.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_jetstream.wire import Rows, header_lines

if TYPE_CHECKING:
    from pyspark_jetstream.columns import Columns

SCHEMA_DDL = "stream_seq BIGINT, time TIMESTAMP, subject STRING, headers MAP<STRING, ARRAY<STRING>>, data BINARY"

HEADERS_TYPE = pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))
TIME_TYPE = pa.timestamp("us", "UTC")
ARROW_SCHEMA = pa.schema(
    [
        ("stream_seq", pa.int64()),
        ("time", TIME_TYPE),
        ("subject", pa.string()),
        ("headers", HEADERS_TYPE),
        ("data", pa.binary()),
    ]
)

STREAM = "stream"  # the column that is not of messages: the same in each row of a range

# Spark is equally fast with batches of 1,000 to 100,000 rows; one megabyte limits the worker's memory.
BATCH_BYTES = 1 << 20
BATCH_ROWS_MAX = 10_000


def to_batches(rows: "Rows | Columns") -> list[pa.RecordBatch]:
    """Return the rows as record batches of about a megabyte."""
    if not isinstance(rows, Rows):
        return [rows.batch]  # of a message, so not larger
    if not rows:
        return []
    whole = pa.RecordBatch.from_arrays(
        [
            pa.array(rows.stream_seqs, pa.int64()),
            times_column(rows).cast(TIME_TYPE, safe=False),
            text_column(rows.subjects),
            headers_column(rows.headers),
            pa.array(rows.payloads, pa.binary()),
        ],
        schema=ARROW_SCHEMA,
    )
    step = min(BATCH_ROWS_MAX, max(1, len(rows) * BATCH_BYTES // max(1, whole.nbytes)))
    return [whole.slice(position, step) for position in range(0, len(rows), step)]


def project(batch: pa.RecordBatch, columns: Sequence[str], stream: str) -> pa.RecordBatch:
    """Return a batch of all columns as one of these columns; `stream` is the same in each row. Copies no row."""
    if tuple(batch.schema.names) == tuple(columns):
        return batch
    arrays = [
        pa.repeat(pa.scalar(stream, pa.string()), batch.num_rows) if name == STREAM else batch.column(name)
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def schema_of_columns(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns, as `project` makes them."""
    return pa.schema([(STREAM, pa.string()) if name == STREAM else ARROW_SCHEMA.field(name) for name in columns])


def times_column(rows: Rows) -> pa.Array:
    """Return the times in nanoseconds."""
    column = text_column(rows.times)
    return (column.cast(pa.int64()) if rows.has_unix_times else column).cast(pa.timestamp("ns", "UTC"))


def text_column(values: list[bytes]) -> pa.Array:
    """Return UTF-8 text; other bytes, which the server allows in subjects, become U+FFFD."""
    try:
        return pa.array(values, pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values], pa.string())


def headers_column(blocks: list[bytes]) -> pa.Array:
    """Return name -> values for each message, null for a message without headers."""
    if not any(blocks):
        return pa.nulls(len(blocks), HEADERS_TYPE)
    return pa.array([header_items(block) if block else None for block in blocks], HEADERS_TYPE)


def header_items(block: bytes) -> list[tuple[str, list[str]]]:
    """Return the headers of one message by name, in the order in which the names appear first."""
    items: dict[str, list[str]] = {}
    for name, value in header_lines(block):
        items.setdefault(name.decode("utf-8", "replace"), []).append(value.decode("utf-8", "replace"))
    return list(items.items())
