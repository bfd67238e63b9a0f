"""Header lines of each row, from a column of maps, without an object for each row."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_jetstream.errors import RowError

NAME = r"^[^\x00-\x20\x7f:]+$"
NOT_IN_A_VALUE = r"[\x00\r\n]"
# Headers that speak about the publish that they were part of. A row that was read from a stream may have them.
OF_ANOTHER_PUBLISH = r"(?i)^(?:nats-batch-|nats-expected-|nats-fast-batch)"
# With exactly once, the server would refuse a batch for a message id that it knows.
OF_ANOTHER_PUBLISH_EXACTLY = r"(?i)^(?:nats-batch-|nats-expected-|nats-fast-batch|nats-msg-id$|nats-rollup$)"


def header_lines(column: Any, *, exactly_once: bool) -> Any:
    """Return the lines of each row (binary; empty where the map is null or empty). Raises RowError.

    The values of the maps are strings or lists of strings. Headers that speak about another publish are left out.
    """
    entries = pc.list_flatten(column.cast(_as_list(column.type)))
    row_bounds = _bounds(pc.list_value_length(column.cast(_as_list(column.type))))
    names, values = entries.field(0), entries.field(1)
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        bounds = _bounds(pc.list_value_length(values)).take(row_bounds)
        names = names.take(pc.list_parent_indices(values))
        values = pc.list_flatten(values)
    else:
        bounds = row_bounds
    if values.null_count:
        raise RowError("column 'headers': a value is null")
    names, values = names.cast(pa.binary()), values.cast(pa.binary())
    _check(names, values)
    lines = pc.binary_join_element_wise(names, b": ", values, b"\r\n", b"")
    foreign = pc.match_substring_regex(
        names, pattern=OF_ANOTHER_PUBLISH_EXACTLY if exactly_once else OF_ANOTHER_PUBLISH
    )
    if pc.any(foreign).as_py():
        own = pc.invert(foreign)
        bounds = _bounds(own.cast(pa.int32())).take(bounds)
        lines = lines.filter(own)
    return pc.binary_join(pa.ListArray.from_arrays(bounds.cast(pa.int32()), lines), b"")


def msg_id_lines(column: Any) -> Any:
    """Return the line of each row's message id (binary; empty where it is null or empty). Raises RowError."""
    ids = pc.fill_null(column.cast(pa.binary()), b"")
    if pc.any(pc.match_substring_regex(ids, pattern=NOT_IN_A_VALUE)).as_py():
        raise RowError("column 'msg_id': a value has a line end or a NUL")
    line = pc.binary_join_element_wise(b"Nats-Msg-Id: ", ids, b"\r\n", b"")
    return pc.if_else(pc.equal(pc.binary_length(ids), 0), pa.scalar(b"", pa.binary()), line)


def _check(names: Any, values: Any) -> None:
    distinct = pc.unique(names)
    wrong = distinct.filter(pc.invert(pc.match_substring_regex(distinct, pattern=NAME)))
    if len(wrong):
        raise RowError(f"column 'headers': {text_of(wrong[0].as_py())!r} is not a header name")
    if pc.any(pc.match_substring_regex(values, pattern=NOT_IN_A_VALUE)).as_py():
        raise RowError("column 'headers': a value has a line end or a NUL")


def text_of(value: bytes) -> str:
    """A value of a row, for a message."""
    return value.decode("utf-8", "replace")


def _as_list(kind: Any) -> Any:
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))


def _bounds(lengths: Any) -> Any:
    """Where each element begins, and at last where all end, from the elements' lengths."""
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0))
    return pa.concat_arrays([pa.array([0], ends.type), ends])
