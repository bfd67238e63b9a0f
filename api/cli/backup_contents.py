"""Which messages the segments of a directory give: as of the last backup, of a sequence, or of a time.

As of a backup they are what the stream had at its cut. As of a sequence or a time between two backups they are what the
stream had at the first of these, and all that came until there: also what was removed before the second one, because
that is what one goes back for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.api.cli.backup_directory import check_sums, read_cut, read_segment
from jetraft.api.cli.backup_session import BackupError
from jetraft.store.model.gotime import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from jetraft.api.cli.backup_directory import BackupManifest, BackupSegment
    from jetraft.cluster.backup.archive import ArchiveEntry
    from jetraft.cluster.backup.live_cut import LiveCut

ENTRY_BYTES = 64  # of a message beside its own bytes, at most: for the state's `bytes`


@attrs.frozen(kw_only=True)
class BackupPoint:
    """A point to restore to, both bounds inclusive; without a sequence and a time it is the last backup."""

    to_seq: int | None = None
    to_ts_ns: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether it is the last backup."""
        return self.to_seq is None and self.to_ts_ns is None

    def has(self, entry: ArchiveEntry) -> bool:
        """Whether a message was there then. Times of messages never go back, so the first that was not ends them."""
        return (self.to_seq is None or entry.seq <= self.to_seq) and (
            self.to_ts_ns is None or entry.ts_ns <= self.to_ts_ns
        )

    def follows(self, segment: BackupSegment) -> bool:
        """Whether a segment was taken at or before it."""
        if self.to_ts_ns is not None:
            return (parse_time(segment.taken) or 0) <= self.to_ts_ns
        return self.to_seq is None or segment.last_seq <= self.to_seq


@attrs.define
class MessageSum:
    """The messages that a restore has."""

    messages: int = 0
    size: int = 0
    first_seq: int = 0
    first_ts_ns: int = 0
    last_seq: int = 0
    last_ts_ns: int = 0

    def add(self, entry: ArchiveEntry) -> None:
        """Count a message."""
        self.messages += 1
        self.size += len(entry.name) + len(entry.hdr) + len(entry.body) + ENTRY_BYTES
        if not self.first_seq:
            self.first_seq, self.first_ts_ns = entry.seq, entry.ts_ns
        self.last_seq, self.last_ts_ns = entry.seq, entry.ts_ns


class BackupContents:
    """The messages at a point. Made by reading all of them: BackupError is raised where a file is not sound."""

    def __init__(self, directory: Path, manifest: BackupManifest, point: BackupPoint) -> None:
        self._directory, self._point = directory, point
        segments = manifest.segments
        if not segments:
            raise BackupError(f"{directory}: there is no backup")
        if point.to_seq is not None and point.to_seq > segments[-1].last_seq:
            raise BackupError(f"{directory}: the last backup ends at {segments[-1].last_seq}, not {point.to_seq}")
        before = [number for number, segment in enumerate(segments) if point.follows(segment)]
        self.base = segments[before[-1]] if before else None  # the last backup at or before the point
        self._segments = self._needed(segments, before)
        check_sums(directory, self._segments)
        self.cut: LiveCut | None = None if self.base is None else read_cut(directory, self.base)
        self.sum = MessageSum()
        for entry in self.messages():
            self.sum.add(entry)

    def _needed(self, segments: tuple[BackupSegment, ...], before: Sequence[int]) -> tuple[BackupSegment, ...]:
        """From the last whole one on which the base rests; beyond the base only as far as the point lies."""
        if not before:
            return segments[:1]
        start = max(number for number in range(before[-1] + 1) if segments[number].whole)
        return segments[start : before[-1] + 1] if self._point.is_last else segments[start:]

    def messages(self) -> Iterator[ArchiveEntry]:
        """The messages, each once, in order."""
        last_seq = 0
        for segment in self._segments:
            for entry in read_segment(self._directory, segment):
                if entry.seq <= last_seq:  # a head, or in a segment before
                    continue
                if not self._point.has(entry):
                    return
                last_seq = entry.seq
                if self.cut is None or entry.seq > self.cut.last_seq or self.cut.has(entry.seq):
                    yield entry

    @property
    def end_seq(self) -> int:
        """The last sequence of the stream at the point, whether its message is there or not."""
        if self._point.to_seq is not None:
            return self._point.to_seq
        return max(self.sum.last_seq, 0 if self.base is None else self.base.last_seq)
