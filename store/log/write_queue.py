"""The changes of a log that are not yet handed to the writer, and the steps in which they become durable.

0. `promise`: the ledger takes what the opening found and the ledger lacks, then term and vote, then the members with
   which a new log begins. So no entry is on disk whose term this member has not recorded. The first entries of a log
   are in the same ledger batch if they are few and small (`begin_in_ledger`): such a write queue is durable then, makes
   no file, and its frames stay in the queue for the first block. What a member of a new stream's group begins
   with follows from the stream's row, which is durable. It counts at once and goes with the next batch of the ledger: a
   block that is written before that does not count without a record either (decision 124).
1. `fill`: the files, in this order:
   - directories that are new;
   - per block: its head if it is new, its frames, fsync, then a mark. The mark says that everything before it is
     durable; nothing waits for the mark itself;
   - frames that are overwritten: fsync of growing blocks (with their marks, so that what a crash leaves of a frame does
     not look like a torn tail), the journal, fsync, directory, the frames, fsync;
   - what is kept of damaged bytes, if something was erased: the names are removed, and the directories synced;
   - the checkpoint under a temporary name, fsync, rename;
   - the log's directory.
2. `records`: the ledger takes what exists from now on and must be there at the next start. One ledger batch serves all
   groups of a turn. When it is durable, the change is durable.
3. `clean_up`: files of blocks that were dropped or cut, older checkpoints and generations, and space that earlier
   blocks reserved and did not use.

A crash before step 2 leaves files that no record names; nothing was reported durable, and the next opening removes
them. A crash before step 3 leaves superfluous files; the next opening removes them too.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.disk.files import TMP_SUFFIX
from jetraft.store.disk.io import Batch, Disk
from jetraft.store.frames import checkpoint as checkpoint_file
from jetraft.store.frames._frame import make_mark
from jetraft.store.frames.cipher import GroupCipher
from jetraft.store.frames.format import (
    ERASE_NAME,
    FRAME_KIND_AT,
    MARK_BYTES,
    QUARANTINE_NAME,
    UNRECORDED_NAME,
    BlockHead,
    Identity,
    Kind,
    block_name,
    checkpoint_name,
    pack_block_head,
    parity_name,
)
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import Born, GroupKey, Point
from jetraft.store.log import erasure
from jetraft.store.log._growth import Segment, WriteQueue, add_growing
from jetraft.store.model.files.block_sizes import BLOCK_BYTES_MIN
from jetraft.store.port import AnyCheckpoint, HardState

BEGINNINGS: Final[tuple[list[Kind], ...]] = (
    [],
    [Kind.STREAM_OP],
)  # kinds of the entries that the ledger may keep, without no-ops


@attrs.define(eq=False, kw_only=True)
class BlockFile:
    """The file of a block."""

    place: "LogPlace"
    head: BlockHead
    fd: int | None = None  # held open while the block grows
    is_growing: bool = False  # an earlier process started it: the first open serves reads and writes
    sealed: bool | None = None  # whether its frames are encrypted; None: not read yet
    is_read_singly: bool = False  # some of it cannot be read: no frame is read with others
    revision: int = 0  # grows with every change of its bytes
    written: int = 0  # bytes that a read of the file sees; 0 until it was created

    @property
    def path(self) -> Path:
        """Its path."""
        return self.place.log / block_name(self.head)


@attrs.frozen(kw_only=True, slots=True)
class Rewriting:
    """A frame that is overwritten: `frame` is what readers see, `stored` what the file has, apart from a seal."""

    file: BlockFile
    frame: bytes
    place: int
    stored: bytes
    is_sealed: bool


@attrs.frozen(kw_only=True, slots=True)
class LogPlace:
    """The place of a log, and its owner. Names are strings: a Path takes half a kilobyte, and a node has many."""

    ledger: Ledger
    directory: str = attrs.field(converter=str)  # the group's
    generation: str  # the name of the log's directory in it
    identity: Identity
    cipher: GroupCipher | None = None  # of a store that is encrypted

    @property
    def disk(self) -> Disk:
        """The disk that it is stored on."""
        return self.ledger.disk

    @property
    def key(self) -> GroupKey:
        """The key of the group in the ledger."""
        return self.identity.group_id, self.identity.incarnation

    @property
    def group(self) -> Path:
        """The group's directory."""
        return Path(self.directory)

    @property
    def log(self) -> Path:
        """The generation's directory."""
        return Path(self.directory, self.generation)


def fill_growing(batch: Batch, write_queue: WriteQueue, place: LogPlace) -> None:
    """The same as `fill` for a write queue that only grows: nearly always."""
    for segment in write_queue.segments:
        _add_segment(batch, place.ledger.disk, segment, place.identity)


def fill(batch: Batch, write_queue: WriteQueue, place: LogPlace, opened: list[int]) -> None:
    """Turn a write queue into operations; `opened` receives the descriptors to close when the batch is done.

    The blocks grow by the marks that are added here. Raises OSError when a file cannot be opened.
    """
    disk, log, identity = place.disk, place.log, place.identity

    def directory(path: Path) -> int:
        opened.append(disk.open_directory(path))
        return opened[-1]

    for path in (*write_queue.new_directories, *(write_queue.empty_directories if write_queue.makes_files else ())):
        batch.sync(directory(path))
    for segment in write_queue.segments:
        _add_segment(batch, disk, segment, identity)
    if write_queue.rewrites:
        _add_rewrites(batch, write_queue, place, directory(log), opened)
    if write_queue.drops_copies:
        _add_removal_of_copies(batch, place, opened)
    if write_queue.checkpoint is not None:
        name = checkpoint_name(write_queue.checkpoint.index)
        made = partial(_packed, write_queue.checkpoint, identity, place.cipher)
        _add_replacement(batch, disk, log / name, made, opened)
    if write_queue.makes_files:
        batch.sync(directory(log))


def begin_in_ledger(write_queue: WriteQueue, place: LogPlace, bytes_max: int) -> list[Segment]:
    """Let the ledger take the first entries of a log, if they are few, and return their segment for the next queue.

    Only where that is all there is to write: the log has no block yet, and nothing else asks for a file. And only what
    is known elsewhere too, should both copies of the ledger be lost: no-ops, and one operation, which is that with
    which a stream begins, its configuration. Entries of an encrypted store go to a block: the ledger is not encrypted.
    """
    segments = write_queue.segments
    if len(segments) != 1 or not segments[0].create or not bytes_max or place.cipher is not None:
        return []
    segment, state = segments[0], place.ledger.state(place.key)
    if segment.first_index != 1 or not segment.frames or segment.end - segment.offset > bytes_max:
        return []
    if [kind for kind in (frame[FRAME_KIND_AT] for frame in segment.frames) if kind != Kind.NOOP] not in BEGINNINGS:
        return []
    asks_for_files = write_queue.checkpoint is not None or write_queue.dropped is not None or write_queue.rewrites
    if asks_for_files or write_queue.drops_copies or write_queue.retired or write_queue.unlink or write_queue.close:
        return []
    if state is not None and state.expects_files:
        return []
    write_queue.begun, write_queue.segments = tuple(segment.frames), []
    return [segment]


def is_first_step(queue: WriteQueue, place: LogPlace, *, is_alone: bool) -> bool:
    """Whether it has nothing but what a member of a new group begins with, whatever happens: who the members are.

    With the only member it is also its vote for itself in term 1, and the entry for the ledger, the configuration.
    """
    if not is_alone and (queue.hard_state is not None or queue.begun):
        return False
    if queue.hard_state not in {None, HardState(term=1, vote=place.identity.node_id)}:
        return False
    if len(queue.begun) > 1 or any(frame[FRAME_KIND_AT] != Kind.STREAM_OP for frame in queue.begun):
        return False
    if any(fact != ledger_records.voted(place.key, HardState(term=0, vote=None)) for fact in queue.facts):
        return False
    if queue.checkpoint is not None or queue.dropped is not None or queue.segments or queue.new_directories:
        return False
    return not (queue.retired or queue.rewrites or queue.drops_copies or queue.unlink or queue.close)


def promise(write_queue: WriteQueue, place: LogPlace) -> list[bytes]:
    """The records that the ledger must have before anything of the write queue is written."""
    found = list(write_queue.facts)  # of files that exist; an older term may be among them
    if write_queue.hard_state is not None:
        found.append(ledger_records.voted(place.key, write_queue.hard_state))
    if write_queue.founding is not None:
        found.append(ledger_records.founded(place.key, write_queue.founding.members))
    if write_queue.begun:
        found.append(ledger_records.begun(place.key, write_queue.begun))
    return found


def records(write_queue: WriteQueue, place: LogPlace) -> list[bytes]:
    """The records that the ledger must have before the write queue is durable."""
    key = place.key
    found: list[bytes] = []
    for segment in write_queue.segments:
        if segment.create:
            head = segment.file.head
            block = Born(head.serial, head.first_index, head.boundary_term, segment.reserved_bytes, head.tag)
            found.append(ledger_records.born(key, block))
    if write_queue.checkpoint is not None:
        point = Point(write_queue.checkpoint.index, write_queue.checkpoint.term)
        found.append(ledger_records.checkpointed(key, point))
    if write_queue.dropped is not None:
        found.append(ledger_records.dropped(key, write_queue.dropped))
    return found


def clean_up(batch: Batch, write_queue: WriteQueue, disk: Disk, opened: list[int]) -> None:
    """Add the operations that remove superfluous files. Raises OSError when a file cannot be opened."""
    opened += write_queue.close
    write_queue.close = []
    for block, file in write_queue.retired:
        fd = disk.open_file(file.path) if file.fd is None else file.fd
        opened.append(fd)
        file.fd = None
        batch.truncate(fd, block.used)
    for path in write_queue.unlink:
        batch.unlink(bytes(path))


def _add_segment(batch: Batch, disk: Disk, segment: Segment, identity: Identity) -> None:
    """Write the frames of one block. The caller syncs the directory for a new file."""
    file, block = segment.file, segment.block
    frames = segment.frames
    if not segment.create:
        if frames:
            if file.fd is None:  # this process writes to a block of an earlier one for the first time
                file.fd = disk.open_file(file.path)
            add_growing(batch, segment, identity.incarnation)
        return
    if file.fd is None:  # or still open from an attempt that ran out of descriptors
        file.fd = disk.open_file(file.path, create=True)
    sizes = dict.fromkeys((block.size, min(block.size, max(BLOCK_BYTES_MIN, segment.end + MARK_BYTES))))
    choices = [(size, pack_block_head(file.head, identity, reserved_bytes=size)) for size in sizes]
    batch.reserve(file.fd, choices, segment.on_reserved)
    batch.write(file.fd, frames, segment.offset)
    batch.sync(file.fd)
    # After the fsync of the frames: a mark says that what precedes it is durable. It goes out with the next fsync.
    mark = make_mark(
        incarnation=identity.incarnation,
        offset=segment.end,
        next_index=segment.first_index + len(frames),
        tag=file.head.tag,
    )
    batch.write(file.fd, [mark], segment.end)
    block.used = max(block.used, segment.end + MARK_BYTES)


def _add_rewrites(batch: Batch, write_queue: WriteQueue, place: LogPlace, log_fd: int, opened: list[int]) -> None:
    """Overwrite frames in place, with a journal."""
    disk, journal = place.disk, place.log / ERASE_NAME
    rewrites = []
    for item in write_queue.rewrites.values():
        stored, serial = item.stored, item.file.head.serial
        if item.is_sealed:
            assert place.cipher is not None
            stored = place.cipher.seal_frame(serial, item.place, stored)
        rewrites.append(erasure.Rewrite(name=item.file.path.name, offset=item.place, frame=stored))
    for growing in dict.fromkeys(item.file.fd for item in write_queue.rewrites.values() if item.file.fd is not None):
        batch.sync_data(growing)
    # The journal is durable, name included, before a byte of a block changes: an opening completes it.
    packed = erasure.pack(rewrites, place.identity)
    _add_replacement(batch, disk, journal, lambda: packed, opened)
    for name in dict.fromkeys(rewrite.name for rewrite in rewrites):  # it holds what is about to be erased
        batch.unlink(bytes(place.log / parity_name(name)))
    batch.sync(log_fd)
    for rewrite, item in zip(rewrites, write_queue.rewrites.values(), strict=True):
        fd = item.file.fd
        if fd is None:
            fd = disk.open_file(item.file.path)
            opened.append(fd)
        batch.write(fd, [rewrite.frame], rewrite.offset)
        batch.sync_data(fd)
    batch.unlink(bytes(journal))


def _add_removal_of_copies(batch: Batch, place: LogPlace, opened: list[int]) -> None:
    """Remove what is kept of damaged bytes in the group's directory. The directories stay, empty."""
    for directory in (place.group / QUARANTINE_NAME, place.group / UNRECORDED_NAME):
        names = place.disk.list_directory(directory)
        for name in names:
            batch.unlink(bytes(directory / name))
        if names:
            opened.append(place.disk.open_directory(directory))
            batch.sync(opened[-1])


def _packed(checkpoint: AnyCheckpoint, identity: Identity, cipher: GroupCipher | None) -> bytes:
    return checkpoint_file.pack(checkpoint.whole(), identity, cipher)


def _add_replacement(batch: Batch, disk: Disk, path: Path, make: Callable[[], bytes], opened: list[int]) -> None:
    """Write a file under a temporary name and rename it into place. The caller syncs the directory.

    Its content is made in the thread that writes it: a checkpoint may have 20 MB.
    """
    tmp = path.with_name(path.name + TMP_SUFFIX)
    fd = disk.open_file(tmp, create=True)
    opened.append(fd)
    batch.truncate(fd, 0)
    batch.write_made(fd, make, 0)
    batch.sync(fd)
    batch.rename(bytes(tmp), bytes(path))
