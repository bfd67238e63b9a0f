"""Converts columns of bytes to Arrow record batches with Spark's types.

Spark checks the first batch of a task: types, order and nullability must equal those of the schema. Its times have
microseconds, so nanoseconds are truncated.
"""

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

HEADER_LIST_TYPE = pa.list_(pa.field("element", pa.struct([("name", pa.string()), ("value", pa.string())])))
# With the columns that answers in columns lack: their times have microseconds, their headers are grouped by name.
OF_ROWS = ("time_ns", "header_list")
SCHEMA_OF_ROWS = pa.schema([*ARROW_SCHEMA, ("time_ns", pa.int64()), ("header_list", HEADER_LIST_TYPE)])

STREAM = "stream"  # the column that is not of messages: the same in each row of a range

# Spark is equally fast with batches of 1,000 to 100,000 rows; one megabyte limits the worker's memory.
BATCH_BYTES = 1 << 20
BATCH_ROWS_MAX = 10_000


def to_batches(rows: "Rows | Columns", *, more: bool = False) -> list[pa.RecordBatch]:
    """Return the rows as record batches of about a megabyte; `more`: with the columns that only rows have."""
    if not isinstance(rows, Rows):
        return [rows.batch]  # of a message, so not larger
    if not rows:
        return []
    times = times_column(rows)
    arrays = [
        pa.array(rows.stream_seqs, pa.int64()),
        times.cast(TIME_TYPE, safe=False),
        text_column(rows.subjects),
        headers_column(rows.headers),
        pa.array(rows.payloads, pa.binary()),
    ]
    if more:
        arrays += [times.cast(pa.int64()), header_list_column(rows.headers)]
    whole = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_OF_ROWS if more else ARROW_SCHEMA)
    step = min(BATCH_ROWS_MAX, max(1, len(rows) * BATCH_BYTES // max(1, whole.nbytes)))
    return [whole.slice(position, step) for position in range(0, len(rows), step)]


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


def header_list_column(blocks: list[bytes]) -> pa.Array:
    """Return names and values of each message as they came, null for a message without headers."""
    return pa.array([header_pairs(block) if block else None for block in blocks], HEADER_LIST_TYPE)


def header_pairs(block: bytes) -> list[dict[str, str]]:
    """Return the header lines of one message, in order."""
    return [
        {"name": name.decode("utf-8", "replace"), "value": value.decode("utf-8", "replace")}
        for name, value in header_lines(block)
    ]


def header_items(block: bytes) -> list[tuple[str, list[str]]]:
    """Return the headers of one message by name, in the order in which the names appear first."""
    items: dict[str, list[str]] = {}
    for name, value in header_lines(block):
        items.setdefault(name.decode("utf-8", "replace"), []).append(value.decode("utf-8", "replace"))
    return list(items.items())
