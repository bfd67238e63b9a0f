"""The next slice of a batch that is answered in columns: one message of the answer.

It is served like one in rows: in slices, some per turn, paused while its reader is behind (direct.py). A message that
columns cannot hold is sent as a row between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.streams.gets._column_record import columns_record

if TYPE_CHECKING:
    from jetraft.cluster.streams.gets.batch_get import BatchGet
    from jetraft.store.stream.stream_store import StreamStore

ROWS_MAX: Final = 16384  # of one message; as in _columns.pyx
SEQ_MAX: Final = (1 << 63) - 1
FIRST_SEQ: Final = b"Jetraft-First-Seq"  # of the stream, as this replica has it
CREATED: Final = b"Jetraft-Created"  # when the stream was created, Unix time in ns: another stream has another


@attrs.frozen(kw_only=True, slots=True)
class ColumnSlice:
    """A message of an answer as a capture record; empty when there is none."""

    record: bytes
    is_over: bool
    is_row_next: bool  # the next message has to be sent as a row


def column_slice(store: StreamStore, batch: BatchGet, created_ns: int) -> ColumnSlice:
    """Make the next message and advance the batch behind it."""
    assert batch.columns is not None
    up_to_seq = batch.columns.up_to_seq or SEQ_MAX
    asked = max(0, min(batch.left, ROWS_MAX, up_to_seq + 1 - batch.next_seq))
    seqs = store.next_runs(batch.filters, batch.next_seq, asked)
    end_seq = store.last_seq if len(seqs) < asked else seqs.last
    record, rows, size, last_row, looked, is_row_next = columns_record(
        store.records,
        seqs,
        batch.reply,
        room=batch.columns.message_bytes,
        wanted=batch.columns.wanted,
        content_max=batch.bytes_left,
        from_seq=batch.next_seq,
        to_seq=max(batch.next_seq - 1, min(end_seq, up_to_seq)),
        num_pending=batch.num_pending,
        applied_seq=store.last_seq,
        first_seq=store.first_seq,
        created_ns=created_ns,
    )
    batch.next_seq = looked + 1
    batch.left -= rows
    batch.bytes_left -= size
    batch.num_pending = max(0, batch.num_pending - rows)
    batch.last_seq = last_row or batch.last_seq
    is_past = batch.left <= 0 or batch.bytes_left <= 0 or looked >= min(up_to_seq, store.last_seq)
    return ColumnSlice(record=record, is_over=is_past and not is_row_next, is_row_next=is_row_next)


def column_facts(store: StreamStore, created_ns: int) -> dict[bytes, bytes]:
    """The fields of an EOB by which a reader of columns checks its range."""
    return {FIRST_SEQ: b"%d" % store.first_seq, CREATED: b"%d" % created_ns}
