"""Positions in a stream: the offset in Spark's checkpoint, and the sequences of the options.

An offset has the name of the stream, its creation time and the next sequence to read. A range between two offsets with
one creation time always has the same rows, except for retention and deletes; so a replay is exact.

The offset at the end of a micro-batch also has the batch's cut: where it begins, in how many partitions it is read, and
which subjects. After a restart Spark asks again for the partitions of a range that it has logged. By then messages may
have become larger, the stream may have been purged, the driver may have other options or another number of cores: the
cut is the one of the first time. Sinks that write exactly once know a row by its partition and its place in it.

The checkpoint of a query with `stream` is one offset, that with `streams` is `{"streams": {name: {"created", "seq"}}}`.
Both forms are read by both, so a query may go over from one to the other.
"""

import logging
from collections.abc import Mapping
from typing import Any

import attrs

from pyspark_jetstream.errors import DataLossError, JetStreamSourceError
from pyspark_jetstream.leader import Leader, StreamView
from pyspark_jetstream.positions import Position

LOG = logging.getLogger("pyspark_jetstream")


@attrs.frozen(kw_only=True, slots=True)
class Cut:
    """How the range that ends at an offset is divided, decided when the end was chosen."""

    start_seq: int  # of the first partition
    count: int  # of partitions; at most as many as sequences
    subjects: tuple[str, ...]  # that are read; none: all

    def to_json_dict(self) -> dict[str, Any]:
        """Return the JSON for the checkpoint."""
        filters = {"subjects": list(self.subjects)} if self.subjects else {}
        return {"from": self.start_seq, "parts": self.count, **filters}


@attrs.frozen(kw_only=True, slots=True)
class Offset:
    """All rows below `seq` were read."""

    stream: str
    created: str
    seq: int
    ahead: bool = False  # an option put it beyond the stream's end, and nothing was read yet: it is waited for
    cut: Cut | None = None  # of the micro-batch that ends here; None where none does

    def to_json_dict(self) -> dict[str, Any]:
        """Return the JSON for the checkpoint. Equal offsets have equal JSON, in the same order."""
        mark = {"ahead": True} if self.ahead else {}
        cut = {"cut": self.cut.to_json_dict()} if self.cut is not None else {}
        return {"stream": self.stream, "created": self.created, "seq": self.seq, **mark, **cut}


@attrs.frozen(kw_only=True, slots=True)
class Offsets:
    """The offset of each stream of a query."""

    by_stream: Mapping[str, Offset]
    several: bool  # the form of the JSON

    def to_json_dict(self) -> dict[str, Any]:
        """Return the JSON for the checkpoint: equal offsets have equal text."""
        if not self.several:
            [only] = self.by_stream.values()
            return only.to_json_dict()
        values = {name: self.by_stream[name].to_json_dict() for name in sorted(self.by_stream)}
        return {
            "streams": {name: {key: value[key] for key in value if key != "stream"} for name, value in values.items()}
        }

    @property
    def seq(self) -> int:
        """The sequence of the only stream."""
        [only] = self.by_stream.values()
        return only.seq


def parse_offsets(value: dict[str, Any], *, stream: str | None) -> Offsets:
    """Return the offsets of a checkpoint; `stream` is that of a query with one.

    Raises JetStreamSourceError when it belongs to another stream or format.
    """
    try:
        parts = value["streams"] if "streams" in value else {value["stream"]: value}
        found = {str(name): _offset(str(name), part) for name, part in parts.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise JetStreamSourceError(f"the offset in the checkpoint is not one of this source: {value}") from None
    if stream is not None and list(found) != [stream]:
        others = ", ".join(repr(name) for name in found)
        raise JetStreamSourceError(
            f"the checkpoint belongs to stream {others}, the query reads {stream!r}: use another checkpoint location"
        )
    return Offsets(by_stream=found, several=stream is None)


def _offset(stream: str, value: dict[str, Any]) -> Offset:
    return Offset(
        stream=stream,
        created=str(value["created"]),
        seq=int(value["seq"]),
        ahead=bool(value.get("ahead", False)),
        cut=_cut(value["cut"]) if "cut" in value else None,
    )


def _cut(value: dict[str, Any]) -> Cut:
    cut = Cut(
        start_seq=int(value["from"]), count=int(value["parts"]), subjects=tuple(map(str, value.get("subjects", ())))
    )
    if cut.start_seq < 1 or cut.count < 1:
        raise ValueError("a cut begins at a sequence and has partitions")
    return cut


def resolve_start(position: Position, leader: Leader, view: StreamView, *, strict: bool) -> int:
    """Return the first sequence to read. Raises DataLossError if `strict` and the given one no longer exists."""
    if position.keyword == "latest":
        return view.end_seq
    if position.time is not None:
        return leader.seq_at(position.time)
    if position.stream_seq is None:
        return view.first_seq
    if position.stream_seq < view.first_seq:
        error = (
            f"startingOffsets {position.stream_seq} is below the first sequence {view.first_seq} of stream "
            f"{leader.stream!r}"
        )
        if strict:
            raise DataLossError(f"{error}; failOnDataLoss=false starts there")
        LOG.warning("%s; starting there", error)
    return max(position.stream_seq, view.first_seq)


def resolve_end(position: Position, leader: Leader, view: StreamView) -> int:
    """Return the sequence before which a batch ends, which may be past the end of the stream."""
    if position.time is not None:
        return min(leader.seq_at(position.time), view.end_seq)
    if position.stream_seq is not None:
        return position.stream_seq
    return view.end_seq


def resolve_range(
    starting: Position, ending: Position, leader: Leader, view: StreamView, *, strict: bool
) -> tuple[int, int]:
    """Return the range of a batch read, within the stream.

    Raises DataLossError if `strict` and an option names a sequence that the stream does not have: it was set back, or
    is another one.
    """
    bounds = (
        ("startingOffsets", resolve_start(starting, leader, view, strict=strict)),
        ("endingOffsets", resolve_end(ending, leader, view)),
    )
    for name, stream_seq in bounds:
        if stream_seq > view.end_seq:
            error = f"{name} {stream_seq} is beyond the end of stream {leader.stream!r}, whose last is {view.last_seq}"
            if strict:
                raise DataLossError(f"{error}; failOnDataLoss=false reads what there is")
            LOG.warning("%s; reading what there is", error)
    return min(bounds[0][1], view.end_seq), min(bounds[1][1], view.end_seq)
