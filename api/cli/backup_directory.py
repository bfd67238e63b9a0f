"""A directory with the backups of one stream: segments, and a manifest that says what they are.

    manifest.json      the stream, when it was created, and for each segment: file, sha256, sequences, configuration
    000001.natsarc     an archive (docs/backup.md) with the state and the consumers of its beginning, and the messages
    000002.natsarc     that came after those of the segment before; a segment that is `whole` has all of them
    000002.cut         the sequences that the stream had at the end of the archive (cluster/backup/live_cut.py)

What a stream had at a cut is what the archives up to there have, without what the cut names as removed. The first
version of the manifest has no cuts: it names what was removed before the archive was begun.

The manifest is replaced when a segment is complete and on disk; a file that it does not name is the rest of a backup
that was broken off. Nothing that is read is believed before it is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from jetraft.api.cli.backup_session import BackupError
from jetraft.api.startup.created_files import made_with
from jetraft.cluster.backup.archive import CONSUMER_PREFIX, MAGIC, STATE_NAME, ArchiveEntry, ArchiveReader
from jetraft.cluster.backup.live_cut import CUT_NAME, LiveCut
from jetraft.store.model.files.file_modes import PRIVATE_DIRECTORY, PRIVATE_FILE
from jetraft.store.s2.framing import CorruptArchiveError, Decompressor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANIFEST: Final = "manifest.json"
FORMAT: Final = 2
FIRST_FORMAT: Final = 1  # of version 0.1.0: without cuts
READ_BYTES: Final = 1 << 20
MANIFEST_BYTES_MAX: Final = 256 << 20
SEQ_MAX: Final = (1 << 62) - 1


@attrs.frozen(kw_only=True)
class BackupSegment:
    """One backup."""

    file: str
    sha256: str
    taken: str  # when its cut was made, RFC 3339
    whole: bool
    from_seq: int  # messages before it are in earlier segments
    last_seq: int
    messages: int  # in this file
    first_ts_ns: int  # of its messages; 0 without one
    last_ts_ns: int
    state: dict[str, Any]
    config: dict[str, Any]
    cut_sha256: str = ""  # empty in the first format
    removed: tuple[tuple[int, int], ...] = ()  # the first format's: runs below `from_seq` that the stream had no more

    @property
    def cut_file(self) -> str:
        """The name of the file with the cut."""
        return self.file.removesuffix(".natsarc") + ".cut"


@attrs.frozen(kw_only=True)
class BackupManifest:
    """All backups of a stream, the oldest first."""

    stream: str
    created: str
    segments: tuple[BackupSegment, ...] = ()

    @property
    def last_seq(self) -> int:
        """The last sequence that is backed up."""
        return self.segments[-1].last_seq if self.segments else 0

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """The manifest of a directory; None without one. Raises BackupError."""
        path = directory / MANIFEST
        if not path.exists():
            return None
        try:
            with path.open("rb") as file:
                return cls.of(json.loads(file.read(MANIFEST_BYTES_MAX)))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BackupError(f"{path}: not a manifest: {error}") from error

    @classmethod
    def of(cls, found: Any) -> Self:
        """Check what was read. Raises ValueError, TypeError, KeyError."""
        if found["format"] not in (FIRST_FORMAT, FORMAT):
            raise ValueError(f"format {found['format']!r} is not known")
        segments = tuple(_segment(one) for one in found["segments"])
        for before, segment in pairwise(segments):
            if not segment.whole and segment.from_seq != before.last_seq + 1:
                raise ValueError(f"{segment.file} does not follow {before.file}: {before.last_seq + 1} is missing")
        if segments and not segments[0].whole:
            raise ValueError(f"{segments[0].file} is not whole")
        return cls(stream=_text(found["stream"]), created=_text(found["created"]), segments=segments)

    def save(self, directory: Path) -> None:
        """Replace the manifest; durable when this returns. Raises OSError."""
        shown = {"format": FORMAT, **attrs.asdict(self)}
        write_durably(directory / MANIFEST, json.dumps(shown, indent=1).encode())


def _segment(found: Any) -> BackupSegment:
    numbers = {name: found[name] for name in ("from_seq", "last_seq", "messages", "first_ts_ns", "last_ts_ns")}
    if not all(type(number) is int and number >= 0 for number in numbers.values()) or numbers["last_seq"] > SEQ_MAX:
        raise ValueError("a number is out of range")
    file = _text(found["file"])
    if not file.removesuffix(".natsarc").isdigit():
        raise ValueError(f"{file!r} is no name of a segment")
    if (
        not isinstance(found["state"], dict)
        or not isinstance(found["config"], dict)
        or type(found["whole"]) is not bool
    ):
        raise TypeError("state and config are objects, whole is true or false")
    return BackupSegment(
        file=file,
        sha256=_text(found["sha256"]),
        taken=_text(found["taken"]),
        whole=found["whole"],
        state=found["state"],
        config=found["config"],
        cut_sha256=_text(found.get("cut_sha256", "")),
        removed=tuple((int(first), int(last)) for first, last in found["removed"]),
        **numbers,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r}")
    return value


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for their owner only: they will hold messages."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def write_durably(path: Path, data: bytes) -> None:
    """Write or replace a file: it is complete and on disk when this returns. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb", opener=made_with(PRIVATE_FILE)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make names of files durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_sums(directory: Path, segments: tuple[BackupSegment, ...]) -> None:
    """Raise BackupError unless each file is what the manifest says, to the last byte."""
    for segment in segments:
        _check_sum(directory / segment.file, segment.sha256)
        if segment.cut_sha256:
            _check_sum(directory / segment.cut_file, segment.cut_sha256)


def _check_sum(path: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(READ_BYTES):
                digest.update(piece)
    except OSError as error:
        raise BackupError(f"{path}: {error.strerror}") from error
    if digest.hexdigest() != sha256:
        raise BackupError(f"{path}: it is damaged: its sum is not that of the manifest")


def read_cut(directory: Path, segment: BackupSegment) -> LiveCut:
    """Return the sequences that the stream had at the end of a segment. Raises BackupError, OSError."""
    if segment.cut_sha256:
        try:
            return LiveCut.parse((directory / segment.cut_file).read_bytes())
        except CorruptArchiveError as error:
            raise BackupError(f"{directory / segment.cut_file}: {error}") from error
    first_seq = min(max(1, segment.state.get("first_seq", 1)), segment.last_seq + 1)
    removed = tuple(run for run in segment.removed if run[0] >= first_seq)
    return LiveCut(first_seq=first_seq, last_seq=segment.last_seq, removed=removed)


def entries_of(pieces: Iterator[bytes], *, where: str) -> Iterator[ArchiveEntry]:
    """The entries of an archive: state, consumers, messages in the order of their sequences, a cut; without the end.

    Raises BackupError for an archive that is damaged, cut off or out of order.
    """
    decompressor, reader = Decompressor(), ArchiveReader()
    has_state, last_seq, has_end = False, 0, False
    try:
        for entry in (entry for piece in pieces for block in decompressor.add(piece) for entry in reader.add(block)):
            is_state = entry.name == STATE_NAME and not entry.seq
            if has_end or has_state == is_state or 0 < entry.seq <= last_seq:
                raise BackupError(f"{where}: its entries are out of order, after sequence {last_seq}")
            has_state, has_end, last_seq = True, entry.is_end, entry.seq or last_seq
            if not has_end:
                yield entry
        decompressor.finish()
    except CorruptArchiveError as error:
        raise BackupError(f"{where}: {error}") from error
    if not has_end or not reader.is_at_an_end:
        raise BackupError(f"{where}: it is cut off")


def read_segment(directory: Path, segment: BackupSegment) -> Iterator[ArchiveEntry]:
    """The entries of a segment. Raises BackupError, OSError."""

    def pieces() -> Iterator[bytes]:
        with (directory / segment.file).open("rb") as file:
            while piece := file.read(READ_BYTES):
                yield piece

    return entries_of(pieces(), where=str(directory / segment.file))


def is_cut(entry: ArchiveEntry) -> bool:
    """Whether an entry says what is removed by the end of the archive."""
    return not entry.seq and entry.name == CUT_NAME


def is_consumer(entry: ArchiveEntry) -> bool:
    """Whether an entry is a consumer's."""
    return not entry.seq and entry.name.startswith(CONSUMER_PREFIX)


__all__ = [
    "MAGIC",
    "BackupManifest",
    "BackupSegment",
    "check_sums",
    "entries_of",
    "is_consumer",
    "is_cut",
    "read_cut",
    "read_segment",
    "sync_directory",
]
