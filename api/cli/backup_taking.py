"""Takes the backup of one stream: what came since the last one in its directory, as another segment."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.api.cli.backup_directory import BackupManifest, BackupSegment, entries_of, sync_directory
from jetraft.api.cli.backup_session import BackupError, BackupSession, check_name
from jetraft.cluster.backup.archive import END, MAGIC, STATE_NAME, ArchiveEntry, pack_entry
from jetraft.store.s2.framing import Compressor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

REMOVED_MAX: Final = 20_000  # removed sequences that are asked for by number; with more the backup is whole
Runs = tuple[tuple[int, int], ...]


@attrs.define
class Tally:
    """What a segment turned out to have."""

    state: dict[str, Any] = attrs.field(factory=dict)
    messages: int = 0
    first_ts_ns: int = 0
    last_ts_ns: int = 0


def take(session: BackupSession, stream: str, directory: Path, *, whole: bool) -> tuple[BackupManifest, BackupSegment]:
    """Add a segment to the directory; durable when this returns. Raises BackupError, JetStreamSourceError, OSError."""
    check_name(stream)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        return _take(session, stream, directory, whole=whole)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other backups from a directory. Raises BackupError when one is at it."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise BackupError(f"{directory}: another backup is writing into it") from error
    finally:
        os.close(fd)


def _take(session: BackupSession, stream: str, directory: Path, *, whole: bool) -> tuple[BackupManifest, BackupSegment]:
    info = session.api(f"STREAM.INFO.{stream}")
    before = BackupManifest.load(directory)
    manifest = before or BackupManifest(stream=stream, created=info["created"])
    _check_same(manifest, stream, info, directory)
    whole = whole or not manifest.segments or info["state"].get("num_deleted", 0) > REMOVED_MAX
    from_seq = 1 if whole else manifest.last_seq + 1
    if not whole and info["state"]["first_seq"] > from_seq:
        raise BackupError(
            f"stream {stream}: messages {from_seq} to {info['state']['first_seq'] - 1} were removed before they were "
            "backed up; --whole begins again with what there is"
        )
    removed = () if whole else _removed(session, stream, info, from_seq)
    file = f"{len(manifest.segments) + 1:06d}.natsarc"
    temporary = directory / f"{file}.tmp"
    tally, digest = Tally(), hashlib.sha256()
    with temporary.open("wb") as out:
        archive = entries_of(session.snapshot(stream, from_seq), where=f"stream {stream}")
        for piece in compressed(_kept(archive, from_seq, tally)):
            digest.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    after = session.api(f"STREAM.INFO.{stream}")
    if after["created"] != manifest.created:
        raise BackupError(f"stream {stream}: it was created again meanwhile")
    last_seq = tally.state.get("last_seq", 0)
    if last_seq < from_seq - 1:
        raise BackupError(f"stream {stream}: it ends at {last_seq}, and {from_seq - 1} is backed up: it has gone back")
    segment = BackupSegment(
        file=file,
        sha256=digest.hexdigest(),
        taken=datetime.now(UTC).isoformat(),
        whole=whole,
        from_seq=from_seq,
        last_seq=last_seq,
        messages=tally.messages,
        first_ts_ns=tally.first_ts_ns,
        last_ts_ns=tally.last_ts_ns,
        state=tally.state,
        config=after["config"],
        removed=removed,
    )
    temporary.rename(directory / file)
    sync_directory(directory)
    manifest = attrs.evolve(manifest, segments=(*manifest.segments, segment))
    manifest.save(directory)
    return manifest, segment


def _check_same(manifest: BackupManifest, stream: str, info: dict[str, Any], directory: Path) -> None:
    if manifest.stream != stream:
        raise BackupError(f"{directory}: it has backups of stream {manifest.stream}")
    if manifest.created != info["created"]:
        raise BackupError(
            f"stream {stream}: it was created {info['created']}, {directory} has backups of one that was created "
            f"{manifest.created}: use another directory"
        )
    if info["state"]["last_seq"] < manifest.last_seq:
        raise BackupError(f"stream {stream}: it ends before {manifest.last_seq}, which is backed up: it has gone back")


def _removed(session: BackupSession, stream: str, info: dict[str, Any], from_seq: int) -> Runs:
    """Runs of sequences that are gone by now and were, or may have been, backed up."""
    first = info["state"]["first_seq"]
    runs = [(1, first - 1)] if first > 1 else []
    if info["state"].get("num_deleted", 0):
        details = session.api(f"STREAM.INFO.{stream}", {"deleted_details": True})["state"]
        runs += runs_of(seq for seq in details.get("deleted") or () if seq < from_seq)
    return tuple(runs)


def runs_of(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs, both ends included."""
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and runs[-1][1] + 1 == seq:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


def _kept(entries: Iterable[ArchiveEntry], from_seq: int, tally: Tally) -> Iterator[ArchiveEntry]:
    """What goes into the segment: a server that does not know `from_seq` sends more."""
    for entry in entries:
        if entry.name == STATE_NAME and not entry.seq:
            tally.state = orjson.loads(entry.body)
        if entry.seq >= from_seq:
            tally.messages += 1
            tally.first_ts_ns = tally.first_ts_ns or entry.ts_ns
            tally.last_ts_ns = entry.ts_ns
        elif entry.seq:
            continue
        yield entry


def compressed(entries: Iterable[ArchiveEntry]) -> Iterator[bytes]:
    """The bytes of an archive with these entries, and its end."""
    compressor = Compressor()
    yield compressor.add(MAGIC)
    for entry in entries:
        if piece := compressor.add(pack_entry(entry)):
            yield piece
    yield compressor.add(pack_entry(END)) + compressor.flush()
