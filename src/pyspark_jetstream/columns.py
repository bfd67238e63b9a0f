"""Answers in columns: the buffers of a message become Arrow arrays without being copied.

A jetraft replica answers a batch direct get in columns when it is asked to (`Accept`). What it sends is not trusted:
every length is checked against the message, and every offset and every text by Arrow, before anyone uses them. So a
malformed answer raises ServerError.

Layout: cluster/streams/gets/_column_record.pyx in jetraft (decision 89).
"""

import struct

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.rows import ARROW_SCHEMA, HEADERS_TYPE, TIME_TYPE

HEAD = struct.Struct("<8s6QqII7Q")
MAGIC = b"JRCOLS1\n"
TIMES, SUBJECTS, HEADERS, DATA = 1, 2, 4, 8
SUBJECTS_MAX = 256  # of a dictionary: a byte numbers them


@attrs.frozen(slots=True)
class Columns:
    """Consecutive messages of one replica, and what it states about itself.

    It has all messages from `from_seq` to `to_seq` that its stream had.
    """

    batch: pa.RecordBatch  # with the columns of ARROW_SCHEMA; those that were not asked for are null
    from_seq: int
    to_seq: int
    num_pending: int  # messages after these
    applied_seq: int  # the last sequence that the replica has
    first_seq: int  # of the stream, as the replica has it
    created_ns: int  # of the stream: another stream has another

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def stream_seqs(self) -> memoryview:
        """The sequences, as a sequence of numbers."""
        column = self.batch.column(0)
        values = memoryview(column.buffers()[1]).cast("B").cast("q")
        return values[column.offset : column.offset + len(column)]

    @property
    def data_bytes(self) -> int:
        """The bytes of all payloads."""
        return int(pc.sum(pc.binary_length(self.batch.column(4))).as_py() or 0)

    def is_ascending(self) -> bool:
        """Whether each sequence is higher than the one before."""
        column = self.batch.column(0)
        return len(column) < 2 or bool(pc.all(pc.less(column[:-1], column[1:])).as_py())  # noqa: PLR2004  (a pair)

    def first(self, count: int) -> "Columns":
        """The first `count` rows."""
        return self if count >= len(self) else attrs.evolve(self, batch=self.batch.slice(0, count))


def parse_columns(message: memoryview | bytes) -> Columns:
    """Return the rows of one message of an answer. Raises ServerError when it is malformed."""
    try:
        return _parse(message)
    except (pa.ArrowException, ValueError, IndexError, OverflowError, struct.error) as error:
        raise ServerError(f"an answer in columns is malformed: {error}") from error


def _parse(message: memoryview | bytes) -> Columns:
    (magic, rows, *facts, there, subjects, names, values, subject_bytes, name_bytes, value_bytes, data_bytes, rest) = (
        HEAD.unpack_from(message)
    )
    if magic != MAGIC or rest or rows == 0 or subjects > SUBJECTS_MAX:
        raise ValueError("its head")
    cursor = _Cursor(message, HEAD.size)
    seqs = cursor.numbers(pa.int64(), rows)
    times = cursor.numbers(TIME_TYPE, rows) if there & TIMES else pa.nulls(rows, TIME_TYPE)
    subject = _subjects(cursor, rows, subjects, subject_bytes) if there & SUBJECTS else pa.nulls(rows, pa.string())
    headers = pa.nulls(rows, HEADERS_TYPE)
    if there & HEADERS:
        headers = _headers(cursor, rows, names, name_bytes, values, value_bytes)
    data = cursor.variable(pa.binary(), rows, data_bytes) if there & DATA else pa.nulls(rows, pa.binary())
    if cursor.at != len(message):
        raise ValueError(f"{len(message)} bytes instead of {cursor.at}")
    batch = pa.RecordBatch.from_arrays([seqs, times, subject, headers, data], schema=ARROW_SCHEMA)
    return Columns(batch, *facts)


def _subjects(cursor: "_Cursor", rows: int, subjects: int, subject_bytes: int) -> pa.Array:
    """Read the subjects, with or without a dictionary."""
    if not subjects:
        return cursor.variable(pa.string(), rows, subject_bytes)
    numbers = cursor.numbers(pa.uint8(), rows)
    return cursor.variable(pa.string(), subjects, subject_bytes).take(numbers)


def _headers(  # noqa: PLR0913, PLR0917  (the numbers of the head)
    cursor: "_Cursor", rows: int, names: int, name_bytes: int, values: int, value_bytes: int
) -> pa.Array:
    """Read the buffers of the headers in their order."""
    has_headers = cursor.buffer((rows + 7) // 8)
    ends_of_rows = cursor.ends(rows, names)
    keys = cursor.variable(pa.string(), names, name_bytes)
    ends_of_names = cursor.ends(names, values)
    texts = cursor.variable(pa.string(), values, value_bytes)
    items_type = HEADERS_TYPE.item_type
    items = pa.Array.from_buffers(items_type, names, [None, ends_of_names], null_count=0, children=[texts])
    entries_type = pa.struct([HEADERS_TYPE.key_field, HEADERS_TYPE.item_field])
    entries = pa.Array.from_buffers(entries_type, names, [None], null_count=0, children=[keys, items])
    return checked(pa.Array.from_buffers(HEADERS_TYPE, rows, [has_headers, ends_of_rows], children=[entries]))


class _Cursor:
    """Takes one buffer after the other from a message; each is within it."""

    def __init__(self, message: memoryview | bytes, at: int) -> None:
        self.at = at
        self._size = len(message)
        self._whole = pa.py_buffer(message)

    def buffer(self, size: int) -> pa.Buffer:
        """The next `size` bytes; the padding after them is skipped."""
        start, self.at = self.at, self.at + (size + 7) // 8 * 8
        if self.at > self._size:
            raise ValueError(f"a buffer ends at {self.at}, the message at {self._size}")
        return self._whole.slice(start, size)

    def numbers(self, kind: pa.DataType, count: int) -> pa.Array:
        """A column of fixed width."""
        return pa.Array.from_buffers(kind, count, [None, self.buffer(count * kind.bit_width // 8)], null_count=0)

    def ends(self, count: int, last: int) -> pa.Buffer:
        """Offsets of `count` values, the last of which ends at `last`."""
        ends = self.buffer(4 * (count + 1))
        values = memoryview(ends).cast("B").cast("i")
        if values[0] != 0 or values[count] != last:
            raise ValueError(f"offsets from {values[0]} to {values[count]}, not from 0 to {last}")
        return ends

    def variable(self, kind: pa.DataType, count: int, size: int) -> pa.Array:
        """A column of texts or bytes, checked."""
        ends = self.ends(count, size)
        return checked(pa.Array.from_buffers(kind, count, [None, ends, self.buffer(size)], null_count=0))


def checked(array: pa.Array) -> pa.Array:
    """Return the array. Raises pa.ArrowInvalid for offsets that are not ascending or outside, and for bad UTF-8."""
    array.validate(full=True)
    return array
