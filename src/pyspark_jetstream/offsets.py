"""Positions in a stream: the offset in Spark's checkpoint, and the sequences of the options.

An offset has the name of the stream, its creation time and the next sequence to read. A range between two offsets with
one creation time always has the same rows, except for retention and deletes; so a replay is exact.
"""

from typing import Any

import attrs

from pyspark_jetstream.errors import DataLossError, JetStreamSourceError
from pyspark_jetstream.leader import Leader, StreamView
from pyspark_jetstream.options import Position


@attrs.frozen(kw_only=True, slots=True)
class Offset:
    """All rows below `seq` were read."""

    stream: str
    created: str
    seq: int

    def to_json_dict(self) -> dict[str, Any]:
        """Return the JSON for the checkpoint."""
        return {"stream": self.stream, "created": self.created, "seq": self.seq}


def parse_offset(value: dict[str, Any], stream: str) -> Offset:
    """Return the offset of a checkpoint. Raises JetStreamSourceError when it belongs to another stream or format."""
    try:
        offset = Offset(stream=str(value["stream"]), created=str(value["created"]), seq=int(value["seq"]))
    except (KeyError, TypeError, ValueError):
        raise JetStreamSourceError(f"the offset in the checkpoint is not one of this source: {value}") from None
    if offset.stream != stream:
        raise JetStreamSourceError(
            f"the checkpoint belongs to stream {offset.stream!r}, the query reads {stream!r}: "
            "use another checkpoint location"
        )
    return offset


def resolve_start(position: Position, leader: Leader, view: StreamView, *, strict: bool) -> int:
    """Return the first sequence to read. Raises DataLossError if `strict` and the given one no longer exists."""
    if position.keyword == "latest":
        return view.end_seq
    if position.time is not None:
        return leader.seq_at(position.time)
    if position.stream_seq is None:
        return view.first_seq
    if position.stream_seq < view.first_seq and strict:
        raise DataLossError(
            f"startingOffsets {position.stream_seq} is below the first sequence {view.first_seq} of stream "
            f"{leader.stream!r}; failOnDataLoss=false starts there"
        )
    return max(position.stream_seq, view.first_seq)


def resolve_end(position: Position, leader: Leader, view: StreamView) -> int:
    """Return the sequence before which a batch ends, never past the end of the stream."""
    if position.time is not None:
        return min(leader.seq_at(position.time), view.end_seq)
    if position.stream_seq is not None:
        return min(position.stream_seq, view.end_seq)
    return view.end_seq
