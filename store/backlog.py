"""What a log has changed and not yet handed to the writer, and how that becomes durable in steps.

0. What an opening has found goes to the ledger where it is new there, and then term and vote, before anything else: no
   entry is on disk whose term this member has not seen. So do the members with which a new log begins.
1. Files (`fill`): new directories; per block its head when it is new, its frames, fsync, then a mark, which says that
   everything before it is durable and can itself wait; frames that are overwritten: the marks of blocks that
   grow, so that what a crash leaves of a frame is never taken for a torn tail, fsync, the journal, fsync, directory,
   the frames, fsync; the checkpoint under another name, fsync, rename; at last the names in the log's directory.
2. The ledger (`records`): what exists from now on, and must be there at the next start. One batch of the ledger serves
   all groups of a turn. When it is durable the change counts.
3. What is not needed any more (`clean_up`): files of blocks that were dropped or cut, older checkpoints and
   generations; what earlier blocks reserved and did not use.

A crash before 2 leaves files that no record names: the next opening removes them, nobody was told of them. A crash
before 3 leaves files that do not count any more: the next opening removes these too.
"""

from pathlib import Path

import attrs

from jetraft.store import checkpoint as checkpoint_file
from jetraft.store import erasure, ledger_records, trimmed
from jetraft.store._frame import make_mark
from jetraft.store.block import BLOCK_BYTES_MIN, Block
from jetraft.store.cipher import GroupCipher
from jetraft.store.format import (
    ERASE_NAME,
    MARK_BYTES,
    TMP_SUFFIX,
    BlockHead,
    Identity,
    block_name,
    checkpoint_name,
    pack_block_head,
)
from jetraft.store.io import Batch, Disk
from jetraft.store.ledger import Ledger
from jetraft.store.ledger_records import Born, GroupKey, Point
from jetraft.store.port import Checkpoint, HardState


@attrs.define(eq=False, kw_only=True)
class BlockFile:
    """The file of a block."""

    place: "LogPlace"
    head: BlockHead
    fd: int | None = None  # held open while the block grows
    is_growing: bool = False  # an earlier process began it: whoever opens it first opens it for reads and writes
    sealed: bool | None = None  # whether its frames are encrypted; None until somebody asks
    revision: int = 0  # grows with every change of its bytes
    written: int = 0  # bytes that a read of the file sees; 0 until it was created

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.place.log / block_name(self.head)


@attrs.define(eq=False, kw_only=True)
class Segment:
    """Frames that follow each other in one block, to be written together."""

    block: Block
    file: BlockFile
    create: bool
    offset: int
    first_index: int
    reserved_bytes: int = 0  # the length of a file that is created
    frames: list[bytes] = attrs.field(factory=list)
    end: int = attrs.field(default=attrs.Factory(lambda self: self.offset, takes_self=True))  # after the last frame

    def add(self, frame: bytes) -> None:
        """Let a frame follow, as its file is to have it."""
        self.frames.append(frame)
        self.end += len(frame)

    def took(self, size: int) -> None:
        """The file that was created has this length."""
        self.reserved_bytes = size
        self.block.shrink(size)

    def keep_below(self, index: int) -> None:
        """Leave out `index` and what follows it."""
        del self.frames[max(0, index - self.first_index) :]
        self.end = self.offset + sum(map(len, self.frames))


@attrs.frozen(kw_only=True, slots=True)
class Rewriting:
    """A frame that is overwritten: as readers see it, and as its file keeps it, apart from a seal."""

    file: BlockFile
    frame: bytes
    place: int
    kept: bytes
    is_sealed: bool


@attrs.define(eq=False, kw_only=True)
class Backlog:
    """Changes that wait for the next batch."""

    facts: list[bytes] = attrs.field(factory=list)  # records of the ledger that come before all others
    hard_state: HardState | None = None
    founding: Checkpoint | None = None  # the one that has no file
    segments: list[Segment] = attrs.field(factory=list)
    retired: list[tuple[Block, BlockFile]] = attrs.field(factory=list)  # blocks that will not grow any more
    rewrites: dict[tuple[int, int], Rewriting] = attrs.field(factory=dict)  # by (block, offset)
    checkpoint: Checkpoint | None = None
    dropped: trimmed.Ranges | None = None
    unlink: list[Path] = attrs.field(factory=list)
    close: list[int] = attrs.field(factory=list)  # descriptors of blocks that were given up
    new_directories: list[Path] = attrs.field(factory=list)  # whose entries are not durable yet
    empty_directories: list[Path] = attrs.field(factory=list)  # the same of a log without files: the first one counts

    @property
    def only_grows(self) -> bool:
        """True when there are only frames to be added to blocks that exist: it may follow a batch on its way."""
        if self.hard_state is not None or self.checkpoint is not None or self.dropped is not None:
            return False
        if self.founding is not None or self.facts or self.retired or self.rewrites:
            return False
        if self.unlink or self.close or self.new_directories:
            return False
        segments = self.segments
        if len(segments) == 1:
            return not segments[0].create
        return bool(segments) and not any(segment.create for segment in segments)

    @property
    def makes_files(self) -> bool:
        """Whether names come into being by it, which must be found again after a crash."""
        return self.checkpoint is not None or any(segment.create for segment in self.segments)

    def frame_bytes(self) -> int:
        """Bytes of frames that wait."""
        size = 0
        for segment in self.segments:
            size += segment.end - segment.offset
        return size


@attrs.frozen(kw_only=True, slots=True)
class LogPlace:
    """Where a log lives and whose it is. Its names are texts: a Path takes half a kilobyte, and a node has many."""

    ledger: Ledger
    directory: str = attrs.field(converter=str)  # the group's
    generation: str  # the name of the log's directory in it
    identity: Identity
    cipher: GroupCipher | None = None  # of a store that is encrypted

    @property
    def disk(self) -> Disk:
        """What it is kept on."""
        return self.ledger.disk

    @property
    def key(self) -> GroupKey:
        """The group in the ledger."""
        return self.identity.group_id, self.identity.incarnation

    @property
    def group(self) -> Path:
        """The group's directory."""
        return Path(self.directory)

    @property
    def log(self) -> Path:
        """The generation's directory."""
        return Path(self.directory, self.generation)


def fill(batch: Batch, backlog: Backlog, place: LogPlace, opened: list[int]) -> None:
    """Turn a backlog into operations; `opened` receives the descriptors to close when the batch is done.

    The blocks grow by the marks that are added here. Opens files, so it may raise OSError.
    """
    if backlog.only_grows:  # nearly always
        for segment in backlog.segments:
            _add_segment(batch, place.disk, segment, place.identity)
    else:
        _fill_in_order(batch, backlog, place, opened)


def _fill_in_order(batch: Batch, backlog: Backlog, place: LogPlace, opened: list[int]) -> None:
    disk, log, identity = place.disk, place.log, place.identity

    def directory(path: Path) -> int:
        opened.append(disk.open_directory(path))
        return opened[-1]

    for path in (*backlog.new_directories, *(backlog.empty_directories if backlog.makes_files else ())):
        batch.sync(directory(path))
    for segment in backlog.segments:
        _add_segment(batch, disk, segment, identity)
    if backlog.rewrites:
        _add_rewrites(batch, backlog, place, directory(log), opened)
    if backlog.checkpoint is not None:
        name = checkpoint_name(backlog.checkpoint.index)
        data = checkpoint_file.pack(backlog.checkpoint, identity, place.cipher)
        _add_replacement(batch, disk, log / name, data, opened)
    if backlog.makes_files:
        batch.sync(directory(log))


def promise(backlog: Backlog, place: LogPlace) -> list[bytes]:
    """What the ledger must have before anything of the backlog is written."""
    found = list(backlog.facts)  # of files that are there already; an older term may be among them
    if backlog.hard_state is not None:
        found.append(ledger_records.voted(place.key, backlog.hard_state))
    if backlog.founding is not None:
        found.append(ledger_records.founded(place.key, backlog.founding.members))
    return found


def records(backlog: Backlog, place: LogPlace) -> list[bytes]:
    """What the ledger must have before the backlog counts as durable."""
    key = place.key
    found: list[bytes] = []
    for segment in backlog.segments:
        if segment.create:
            head = segment.file.head
            block = Born(head.serial, head.first_index, head.boundary_term, segment.reserved_bytes, head.tag)
            found.append(ledger_records.born(key, block))
    if backlog.checkpoint is not None:
        point = Point(backlog.checkpoint.index, backlog.checkpoint.term)
        found.append(ledger_records.checkpointed(key, point))
    if backlog.dropped is not None:
        found.append(ledger_records.dropped(key, backlog.dropped))
    return found


def clean_up(batch: Batch, backlog: Backlog, disk: Disk, opened: list[int]) -> None:
    """Operations for what is not needed any more. Opens files, so it may raise OSError."""
    opened += backlog.close
    backlog.close = []
    for block, file in backlog.retired:
        fd = disk.open_file(file.path) if file.fd is None else file.fd
        opened.append(fd)
        file.fd = None
        batch.truncate(fd, block.used)
    for path in backlog.unlink:
        batch.unlink(bytes(path))


def _add_segment(batch: Batch, disk: Disk, segment: Segment, identity: Identity) -> None:
    """Frames of one block. The name of one that is to be created is synced by the caller."""
    file, block = segment.file, segment.block
    frames = segment.frames
    if segment.create:
        if file.fd is None:  # or open since an attempt for which there were too few descriptors
            file.fd = disk.open_file(file.path, create=True)
        sizes = dict.fromkeys((block.size, min(block.size, max(BLOCK_BYTES_MIN, segment.end + MARK_BYTES))))
        choices = [(size, pack_block_head(file.head, identity, reserved_bytes=size)) for size in sizes]
        batch.reserve(file.fd, choices, segment.took)
        batch.write(file.fd, frames, segment.offset)
        batch.sync(file.fd)
    elif frames:
        if file.fd is None:  # the first time that this process writes to a block of an earlier one
            file.fd = disk.open_file(file.path)
        batch.write(file.fd, frames, segment.offset)
        batch.sync_data(file.fd)
    else:
        return
    mark = make_mark(
        incarnation=identity.incarnation,
        offset=segment.end,
        next_index=segment.first_index + len(frames),
        tag=file.head.tag,
    )
    batch.write(file.fd, [mark], segment.end)
    block.used = max(block.used, segment.end + MARK_BYTES)


def _add_rewrites(batch: Batch, backlog: Backlog, place: LogPlace, log_fd: int, opened: list[int]) -> None:
    """Overwrite frames in place, by way of a journal."""
    disk, journal = place.disk, place.log / ERASE_NAME
    rewrites = []
    for item in backlog.rewrites.values():
        kept, serial = item.kept, item.file.head.serial
        if item.is_sealed:
            assert place.cipher is not None
            kept = place.cipher.seal_frame(serial, item.place, kept)
        rewrites.append(erasure.Rewrite(name=item.file.path.name, offset=item.place, frame=kept))
    for growing in dict.fromkeys(item.file.fd for item in backlog.rewrites.values() if item.file.fd is not None):
        batch.sync_data(growing)
    _add_replacement(batch, disk, journal, erasure.pack(rewrites, place.identity), opened)
    batch.sync(log_fd)
    for rewrite, item in zip(rewrites, backlog.rewrites.values(), strict=True):
        fd = item.file.fd
        if fd is None:
            fd = disk.open_file(item.file.path)
            opened.append(fd)
        batch.write(fd, [rewrite.frame], rewrite.offset)
        batch.sync_data(fd)
    batch.unlink(bytes(journal))


def _add_replacement(batch: Batch, disk: Disk, path: Path, data: bytes, opened: list[int]) -> None:
    """Write a file under another name and put it in place; the directory is synced by the caller."""
    tmp = path.with_name(path.name + TMP_SUFFIX)
    fd = disk.open_file(tmp, create=True)
    opened.append(fd)
    batch.truncate(fd, 0)
    batch.write(fd, [data], 0)
    batch.sync(fd)
    batch.rename(bytes(tmp), bytes(path))
