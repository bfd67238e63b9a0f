"""Rows as three Arrow columns of bytes: subject, header lines, payload. Nothing here makes an object for each row.

`rows_of` checks what the protocol would not survive (a line end in a subject or a header), with the column's name in
the error. `cut` makes pieces as long as its bounds allow, however Spark grouped the rows.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_jetstream.errors import RowError
from pyspark_jetstream.write.headers import header_lines, msg_id_lines
from pyspark_jetstream.write.layout import Layout
from pyspark_jetstream.write.subjects import SUBJECT_BYTES_MAX

# What a message needs on the wire beside subject, header lines and payload, roughly: verb, reply subject, sizes.
FRAME_BYTES = 64
HEADER_BLOCK_BYTES = len(b"NATS/1.0\r\n\r\n")


RowKey = tuple[bytes, bytes, bytes]  # subject, header lines, payload


@attrs.frozen(slots=True, eq=False)
class Rows:
    """Columns of one length, without nulls, of type binary."""

    subjects: Any  # pyarrow arrays
    lines: Any  # header lines, each ended by CR LF; empty for a message without headers
    payloads: Any

    def __len__(self) -> int:
        return len(self.payloads)

    def slice(self, start: int, count: int) -> "Rows":
        """Part of the rows; copies nothing."""
        return Rows(
            self.subjects.slice(start, count), self.lines.slice(start, count), self.payloads.slice(start, count)
        )

    def take(self, places: list[int]) -> "Rows":
        """The rows at these places."""
        columns = attrs.astuple(self, recurse=False)
        return Rows(*(column.take(pa.array(places, pa.int64())) for column in columns))

    def sizes(self) -> Any:
        """Roughly the bytes that each row takes on the wire, as an array of int64."""
        lengths = [pc.binary_length(column).cast(pa.int64()) for column in attrs.astuple(self, recurse=False)]
        return pc.add(pc.add(lengths[0], lengths[1]), pc.add(lengths[2], FRAME_BYTES))

    def contents(self) -> Iterator[bytes | memoryview]:
        """For each column the lengths of its values, and the values; those of pieces, joined, are those of all rows."""
        for column in attrs.astuple(self, recurse=False):
            yield memoryview(pc.binary_length(column).buffers()[1])[: 4 * len(column)]
            yield values_of(column)

    def keys(self) -> list[RowKey]:
        """Each row as a value that can be compared."""
        columns = [column.to_pylist() for column in attrs.astuple(self, recurse=False)]
        return list(zip(*columns, strict=True))


def joined(parts: list[Rows]) -> Rows:
    """All rows of the parts, of which there is at least one, in order."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(attrs.astuple(part, recurse=False) for part in parts), strict=True)
    return Rows(*(pa.concat_arrays(column) for column in columns))


def no_rows() -> Rows:
    """Rows without a row."""
    return Rows(*(pa.array([], pa.binary()) for _ in range(3)))


def rows_of_keys(keys: list[RowKey]) -> Rows:
    """Rows that have these keys."""
    return Rows(*(pa.array([key[place] for key in keys], pa.binary()) for place in range(3)))


def values_of(column: Any) -> memoryview:
    """The bytes of all values of a binary column, one after the other, without a copy."""
    if not len(column):
        return memoryview(b"")
    _, offsets, data = column.buffers()
    bounds = memoryview(offsets).cast("B").cast("i")
    first, last = bounds[column.offset], bounds[column.offset + len(column)]
    return memoryview(data)[first:last] if data is not None else memoryview(b"")


def rows_of(batch: Any, layout: Layout, *, payload_bytes_max: int) -> Rows:
    """Return the rows of a record batch of Spark. Raises RowError, naming the column."""
    count = batch.num_rows
    payloads = _bytes_of(batch, layout.data)
    if layout.subject_value is None:
        assert layout.subject is not None
        subjects = _bytes_of(batch, layout.subject)
        check_subjects(subjects, layout)
    else:
        subjects = pa.repeat(pa.scalar(layout.subject_value.encode(), pa.binary()), count)
    if layout.headers is not None:
        lines = header_lines(batch.column(layout.headers), exactly_once=layout.exactly_once)
    else:
        lines = pa.repeat(pa.scalar(b"", pa.binary()), count)
    if layout.msg_id is not None:
        lines = pc.binary_join_element_wise(lines, msg_id_lines(batch.column(layout.msg_id)), b"")
    check_sizes(lines, payloads, payload_bytes_max)
    return Rows(subjects, lines, payloads)


def _bytes_of(batch: Any, column: int) -> Any:
    values = batch.column(column)
    if values.null_count:
        raise RowError(f"column {batch.schema.names[column]!r} has a null: each message needs a value")
    return values.cast(pa.binary())


def check_subjects(subjects: Any, layout: Layout) -> None:
    """Raise RowError for the first subject that is invalid or that the stream does not keep."""
    distinct = pc.unique(subjects)
    kept = pc.match_substring_regex(distinct, pattern=layout.kept)
    wrong = distinct.filter(pc.invert(kept))
    if len(wrong):
        subject = wrong[0].as_py().decode("utf-8", "replace")
        raise RowError(
            f"column 'subject': {subject!r} is not a subject that stream {layout.stream!r} keeps "
            f"({', '.join(layout.filters)})"
        )
    longest = pc.max(pc.binary_length(distinct)).as_py() or 0
    if longest > SUBJECT_BYTES_MAX:
        raise RowError(f"column 'subject': a subject has {longest} bytes, at most {SUBJECT_BYTES_MAX} can be sent")


def check_sizes(lines: Any, payloads: Any, payload_bytes_max: int) -> None:
    """Raise RowError when a row is larger than the servers accept."""
    total = pc.add(pc.binary_length(lines), pc.binary_length(payloads))
    largest = (pc.max(total).as_py() or 0) + HEADER_BLOCK_BYTES
    if largest > payload_bytes_max:
        raise RowError(
            f"column 'data': a row has {largest} bytes with its headers, and the server's max_payload is "
            f"{payload_bytes_max}"
        )


def cut(parts: Iterable[Rows], *, rows_max: int, bytes_max: int) -> Iterator[Rows]:
    """Yield all rows in pieces: each as long as both bounds allow, at least one row; the last may be shorter."""
    waiting: Rows | None = None
    for part in parts:
        waiting = joined([waiting, part]) if waiting is not None and len(waiting) else part
        sizes = waiting.sizes()
        start = 0
        while (count := full_piece(sizes, start, rows_max, bytes_max)) is not None:
            yield waiting.slice(start, count)
            start += count
        waiting = waiting.slice(start, len(waiting) - start)
    if waiting is not None and len(waiting):
        yield waiting


def full_piece(sizes: Any, start: int, rows_max: int, bytes_max: int) -> int | None:
    """How many rows from `start` on make a piece to which no row can be added; None when more rows may follow."""
    candidates = sizes.slice(start, rows_max)
    if (pc.sum(candidates).as_py() or 0) <= bytes_max:
        return rows_max if len(candidates) == rows_max else None
    total = 0
    for count, size in enumerate(candidates.to_pylist()):
        total += size
        if total > bytes_max:
            return max(count, 1)
    raise AssertionError("the sum of the sizes is beyond the bound")
