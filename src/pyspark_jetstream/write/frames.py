"""Protocol bytes of many messages at once: Arrow joins the columns into one buffer, which goes to the socket as it is.

A message without headers is a PUB, one with headers an HPUB (ADR-4), so a row without headers is stored without.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_jetstream.write.rows import Rows, values_of

VERSION = b"NATS/1.0\r\n"
BLOCK_BYTES = len(VERSION) + 2  # of a header block without lines
BATCH_MESSAGES_MAX = 1000  # of an atomic batch: the limit of nats-server and of jetraft
NUMBERS = pa.array([b"%d" % number for number in range(1, BATCH_MESSAGES_MAX + 1)], pa.binary())
BLANKS = pa.array([b" "] * BATCH_MESSAGES_MAX, pa.binary())


def windowed(rows: Rows, reply: bytes) -> memoryview:
    """Return publishes of all rows with one reply subject."""
    lines = pc.binary_length(rows.lines)
    payloads = pc.binary_length(rows.payloads)
    start, end = b" %b " % reply, b"\r\n"
    if (pc.max(lines).as_py() or 0) == 0:
        return _joined(b"PUB ", rows.subjects, start, _digits(payloads), end, rows.payloads, end)
    has = pc.greater(lines, 0)
    block = pc.add(lines, BLOCK_BYTES)
    nothing = pa.scalar(b"", pa.binary())
    return _joined(
        pc.if_else(has, pa.scalar(b"HPUB ", pa.binary()), pa.scalar(b"PUB ", pa.binary())),
        rows.subjects,
        start,
        pc.if_else(has, pc.binary_join_element_wise(_digits(block), b" ", b""), nothing),
        _digits(pc.add(payloads, pc.if_else(has, block, 0))),
        end,
        pc.if_else(has, pc.binary_join_element_wise(VERSION, rows.lines, end, b""), nothing),
        rows.payloads,
        end,
    )


def batched(rows: Rows, batch_id: bytes, first_reply: bytes) -> memoryview:
    """Return the messages of an atomic batch, numbered from 1; the first one has a reply subject (ADR-50)."""
    numbers = NUMBERS.slice(0, len(rows))
    fixed = b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: " % batch_id
    replies = pa.concat_arrays([pa.array([b" %b " % first_reply], pa.binary()), BLANKS.slice(1, len(rows) - 1)])
    headers = pc.binary_join_element_wise(b"\r\n" + VERSION + fixed, numbers, b"\r\n", rows.lines, b"\r\n", b"")
    block = pc.subtract(pc.binary_length(headers), 2)
    total = pc.add(block, pc.binary_length(rows.payloads))
    return _joined(
        b"HPUB ", rows.subjects, replies, _digits(block), b" ", _digits(total), headers, rows.payloads, b"\r\n"
    )


def committing(  # noqa: PLR0913  (what such a message consists of)
    subject: bytes, reply: bytes, *, batch_id: bytes, number: int, lines: bytes, payload: bytes
) -> bytes:
    """Return the last message of an atomic batch."""
    block = b"%bNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\nNats-Batch-Commit: 1\r\n%b\r\n" % (
        VERSION,
        batch_id,
        number,
        lines,
    )
    total = len(block) + len(payload)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(block), total, block, payload)


def _digits(numbers: Any) -> Any:
    """Numbers as text; where all are the same, one value for all rows."""
    bounds = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low == high and low is not None:
        return pa.scalar(b"%d" % low, pa.binary())
    return numbers.cast(pa.string()).cast(pa.binary())


def _joined(*columns: Any) -> memoryview:
    """The bytes of all rows, each the join of its columns; a value that is no column is the same in each row."""
    return values_of(pc.binary_join_element_wise(*columns, b""))
