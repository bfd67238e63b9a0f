"""Takes the backup of one stream: what came since the last one in its directory, as another segment."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
import orjson

from jetraft.api.cli.backup_contents import BackupContents, BackupPoint
from jetraft.api.cli.backup_directory import (
    BackupManifest,
    BackupSegment,
    entries_of,
    is_cut,
    make_private,
    sync_directory,
    write_durably,
)
from jetraft.api.cli.backup_session import BackupError, BackupSession, check_name
from jetraft.api.cli.progress_line import progress_line
from jetraft.api.startup.created_files import made_with
from jetraft.cluster.backup.archive import END, MAGIC, STATE_NAME, ArchiveEntry, pack_entry
from jetraft.cluster.backup.live_cut import CutBuilder, LiveCut
from jetraft.store.model.files.file_modes import PRIVATE_FILE
from jetraft.store.s2.framing import Compressor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


@attrs.define
class Tally:
    """The contents of an archive, counted while it is written."""

    state: dict[str, Any] = attrs.field(factory=dict)
    messages: int = 0  # that are kept
    first_ts_ns: int = 0
    last_ts_ns: int = 0
    seen: CutBuilder = attrs.field(factory=CutBuilder)  # of all messages, also of those that are not kept
    cut: LiveCut | None = None  # that the server has made
    done: Callable[[int], object] = int  # is told of each message that is kept

    def live(self, from_seq: int) -> LiveCut | None:
        """Return the sequences that the stream had at the end; None where the archive does not say them.

        nats-server sends all messages, so what it does not send is removed. A jetraft of before 0.2 makes no cut and
        leaves out what is before `from_seq`.
        """
        last_seq = self.state.get("last_seq", 0)
        if self.cut is not None:
            return self.cut
        is_whole = from_seq == 1 or not self.state.get("messages") or 0 < self.seen.first_seq < from_seq
        return self.seen.cut(last_seq) if is_whole or self.state.get("first_seq", 0) >= from_seq else None


def take(
    session: BackupSession, stream: str, directory: Path, *, whole: bool
) -> tuple[BackupManifest, BackupSegment, int]:
    """Add a segment to the directory; returns all of them, that one, and how many messages the stream had.

    It is durable, and was read back, when this returns. Raises BackupError, JetStreamSourceError, OSError.
    """
    check_name(stream)
    make_private(directory)
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


def _take(
    session: BackupSession, stream: str, directory: Path, *, whole: bool
) -> tuple[BackupManifest, BackupSegment, int]:
    info = session.api(f"STREAM.INFO.{stream}")
    before = BackupManifest.load(directory)
    manifest = before or BackupManifest(stream=stream, created=info["created"])
    _check_same(manifest, stream, info, directory)
    from_seq = 1 if whole or not manifest.segments else manifest.last_seq + 1
    file = f"{len(manifest.segments) + 1:06d}.natsarc"
    tally = Tally()
    coming = min(info["state"]["messages"], max(0, info["state"]["last_seq"] + 1 - from_seq))
    with progress_line(f"backing {stream} up", coming) as tally.done:
        sha256 = _write_archive(session, stream, directory / file, from_seq, tally)
    cut = tally.live(from_seq)
    if cut is None:
        return _take(session, stream, directory, whole=True)
    after = session.api(f"STREAM.INFO.{stream}")
    if after["created"] != manifest.created:
        raise BackupError(f"stream {stream}: it was created again meanwhile")
    if cut.last_seq < from_seq - 1:
        raise BackupError(
            f"stream {stream}: it ends at {cut.last_seq}, and {from_seq - 1} is backed up: it has gone back"
        )
    packed = cut.pack()
    segment = BackupSegment(
        file=file,
        sha256=sha256,
        taken=datetime.now(UTC).isoformat(),
        whole=from_seq == 1,
        from_seq=from_seq,
        last_seq=cut.last_seq,
        messages=tally.messages,
        first_ts_ns=tally.first_ts_ns,
        last_ts_ns=tally.last_ts_ns,
        state=tally.state,
        config=after["config"],
        cut_sha256=hashlib.sha256(packed).hexdigest(),
    )
    write_durably(directory / segment.cut_file, packed)
    manifest = attrs.evolve(manifest, segments=(*manifest.segments, segment))
    verify(directory, manifest)
    manifest.save(directory)
    return manifest, segment, cut.live


def _write_archive(session: BackupSession, stream: str, path: Path, from_seq: int, tally: Tally) -> str:
    """Write what the server sends; returns its SHA-256. Durable when this returns. Raises BackupError, OSError."""
    temporary, digest = path.with_name(path.name + ".tmp"), hashlib.sha256()
    with open(temporary, "wb", opener=made_with(PRIVATE_FILE)) as out:
        archive = entries_of(session.snapshot(stream, from_seq), where=f"stream {stream}")
        for piece in compressed(_kept(archive, from_seq, tally)):
            digest.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    temporary.rename(path)
    sync_directory(path.parent)
    return digest.hexdigest()


def verify(directory: Path, manifest: BackupManifest) -> None:
    """Read back what a restore would read, and compare it with the cut. Raises BackupError unless all is there."""
    stream, segment = manifest.stream, manifest.segments[-1]
    contents = BackupContents(directory, manifest, BackupPoint())
    assert contents.cut is not None
    if contents.sum.messages != contents.cut.live:
        raise BackupError(
            f"stream {stream}: it has {contents.cut.live} messages up to {segment.last_seq}, of which "
            f"{contents.sum.messages} are in the backup: {directory / segment.file} is not used; try --whole"
        )


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


def _kept(entries: Iterable[ArchiveEntry], from_seq: int, tally: Tally) -> Iterator[ArchiveEntry]:
    """The records for the segment: a server that does not know `from_seq` sends more."""
    for entry in entries:
        if entry.name == STATE_NAME and not entry.seq:
            tally.state = orjson.loads(entry.body)
        if is_cut(entry):
            tally.cut = LiveCut.parse(entry.body)
            continue
        if entry.seq:
            tally.seen.add(entry.seq)
        if entry.seq >= from_seq:
            tally.messages += 1
            tally.first_ts_ns = tally.first_ts_ns or entry.ts_ns
            tally.last_ts_ns = entry.ts_ns
            tally.done(1)
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
