"""Restores a stream from the directory of its backups, as of the last one, of a sequence, or of a time.

As of the last backup it has what the stream had then. As of a sequence or a time it has all messages up to there that
were ever backed up, also those that were removed later, because that is what one goes back for; its configuration and
its consumers are those of the last backup that ends there or before.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.api.cli.backup_directory import BackupManifest, BackupSegment, check_sums, is_consumer, read_segment
from jetraft.api.cli.backup_session import BackupError, BackupSession, check_name
from jetraft.api.cli.backup_taking import compressed
from jetraft.cluster.backup.archive import STATE_NAME, ArchiveEntry
from jetraft.store.model.gotime import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTRY_BYTES: Final = 64  # what a message takes beside its own bytes, at most: for the state's `bytes`


@attrs.frozen(kw_only=True)
class RestoreWish:
    """What is to be restored. Without a sequence and a time: as of the last backup."""

    to_seq: int | None = None
    to_ts_ns: int | None = None
    name: str = ""  # under which; empty: its own, with its subjects and consumers


@attrs.define
class RestoredSum:
    """The messages that will be restored."""

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


class Backup:
    """The segments of a directory from which a restore is made. Raises BackupError where they are not sound."""

    def __init__(self, directory: Path, wanted: RestoreWish) -> None:
        manifest = BackupManifest.load(directory)
        if manifest is None or not manifest.segments:
            raise BackupError(f"{directory}: there is no backup")
        self.stream = manifest.stream
        check_name(wanted.name or self.stream)
        self._directory = directory
        self._wanted = wanted
        segments = manifest.segments
        self._is_last = wanted.to_seq is None and wanted.to_ts_ns is None
        if self._is_last:
            start = max(number for number, one in enumerate(segments) if one.whole)
            self.segments = segments[start:]
        else:
            self.segments = segments
        check_sums(directory, self.segments)
        self._removed = self.segments[-1].removed if self._is_last else ()
        self._removed_firsts = [first for first, _ in self._removed]
        self.sum = RestoredSum()
        for entry in self.messages():
            self.sum.add(entry)
        self.end_seq = self._end_seq()
        self.based_on = self._based_on()

    def _end_seq(self) -> int:
        if self._is_last:
            return self.segments[-1].last_seq
        to_seq = self._wanted.to_seq
        if to_seq is None:
            return self.sum.last_seq
        if to_seq > self.segments[-1].last_seq:
            raise BackupError(f"{self._directory}: the last backup ends at {self.segments[-1].last_seq}, not {to_seq}")
        return to_seq

    def _based_on(self) -> BackupSegment:
        """The segment with configuration and consumers."""
        fitting = [one for one in self.segments if one.last_seq <= self.end_seq]
        return fitting[-1] if fitting else self.segments[0]

    def messages(self) -> Iterator[ArchiveEntry]:
        """The messages that are to be restored, each once, in order."""
        last_seq, to_seq, to_ts_ns = 0, self._wanted.to_seq, self._wanted.to_ts_ns
        for segment in self.segments:
            for entry in read_segment(self._directory, segment):
                if entry.seq <= last_seq:  # a head, or in a segment before
                    continue
                if (to_seq is not None and entry.seq > to_seq) or (to_ts_ns is not None and entry.ts_ns > to_ts_ns):
                    return
                last_seq = entry.seq
                if not self._is_removed(entry.seq):
                    yield entry

    def _is_removed(self, seq: int) -> bool:
        at = bisect_right(self._removed_firsts, seq) - 1
        return at >= 0 and seq <= self._removed[at][1]

    def consumers(self) -> list[ArchiveEntry]:
        """Those of the segment it is based on; none when that ends later, or under another name."""
        if self._wanted.name or self.based_on.last_seq > self.end_seq:
            return []
        found = []
        for entry in read_segment(self._directory, self.based_on):
            if entry.seq:
                break
            if is_consumer(entry):
                found.append(entry)
        return found

    def config(self) -> dict[str, Any]:
        """The configuration of the stream that is made."""
        config = dict(self.based_on.config)
        metadata = {key: value for key, value in (config.get("metadata") or {}).items() if not key.startswith("_nats.")}
        config["metadata"] = metadata
        if self._wanted.name:
            config |= {"name": self._wanted.name, "subjects": [self._wanted.name]}
            for name in ("mirror", "sources", "republish", "subject_transform"):
                config.pop(name, None)
        return config

    def state(self, consumers: int) -> dict[str, Any]:
        """The state of the stream that is made."""
        found = self.sum
        first_seq = found.first_seq or self.end_seq + 1
        if self._is_last:
            first_seq = max(self.based_on.state.get("first_seq", 0), min(first_seq, self.end_seq + 1))
        return {
            "messages": found.messages,
            "bytes": found.size,
            "first_seq": first_seq if self.end_seq else 0,
            "first_ts": format_time(found.first_ts_ns),
            "last_seq": self.end_seq,
            "last_ts": format_time(found.last_ts_ns),
            "consumer_count": consumers,
        }


def put(session: BackupSession, backup: Backup, wanted: RestoreWish) -> dict[str, Any]:
    """Make the stream and compare it with what it is to be. Raises BackupError, JetStreamSourceError, OSError."""
    consumers = backup.consumers()
    config, state = backup.config(), backup.state(len(consumers))
    name = wanted.name or backup.stream

    def entries() -> Iterator[ArchiveEntry]:
        yield ArchiveEntry(STATE_NAME, 0, 0, b"", orjson.dumps(state))
        yield from consumers
        yield from backup.messages()

    info = session.restore(name, {"config": config, "state": state}, compressed(entries()))
    found = info["state"]
    for field in ("messages", "first_seq", "last_seq") if backup.end_seq else ("messages", "last_seq"):
        if found[field] != state[field]:
            raise BackupError(f"stream {name}: it is there with {field} {found[field]} instead of {state[field]}")
    return info
