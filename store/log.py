"""The ordered log of one group in files: append, cut, trim, term and vote, checkpoints, and reads by index or by place.

Model: appends are placed in blocks and can be read from memory at once; `submit` turns everything that waits into one
batch for the writer thread (store/backlog.py has the order and why it is safe); while it runs, more gathers for the
next. The place of a frame never changes, so message reads need only (block, offset).

Invariants: a byte of a block is written once: after a cut and after an opening the log goes on in a new block, whose
head voids what older ones hold from there on; `durable_index <= last_index`; a failed log never writes again.
Recovery is in store/recovery.py, the layout in store/format.py. Source of the idea: design, "one log, written once".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs

from jetraft.store import checkpoint as checkpoint_file
from jetraft.store import erasure, trimmed
from jetraft.store._frame import record_at, seal
from jetraft.store.backlog import Backlog, BlockFile, LogPlace, Segment, fill
from jetraft.store.block import Block, BlockList, entry_of, last_seq_of
from jetraft.store.checkpoint import CHECKPOINTS_KEPT
from jetraft.store.cipher import SEAL_BYTES
from jetraft.store.compaction import Compacted, Source, replacing
from jetraft.store.format import (
    BLOCK_HEAD_BYTES,
    MARK_BYTES,
    RECORD_HEADER_BYTES,
    BlockHead,
    Identity,
    Kind,
    block_name,
    checkpoint_name,
)
from jetraft.store.frame_reader import FrameReader
from jetraft.store.hard_state import Copy
from jetraft.store.io import Batch
from jetraft.store.keyring import Secrets
from jetraft.store.model.fifo import Fifo
from jetraft.store.port import (
    Checkpoint,
    Entry,
    FrameRef,
    HardState,
    LogStatistics,
    StoreCorrupt,
    StoreFailed,
)
from jetraft.store.prepare import DEFAULT_SIZES, Piece, PieceSizes, Preparation
from jetraft.store.recovery import MAX_SEQ, FoundBlock, RecoveryMode, RecoveryReport, ranges_of, read_file
from jetraft.store.scrub import Target
from jetraft.store.snapshot import Manifest, Staging, make_manifest

BLOCK_BYTES_FIRST: Final = 256 << 10  # a thousand small streams reserve 256 MB
BLOCK_BYTES_MAX: Final = 32 << 20  # a trim gives space back in these steps; a roll costs three fsyncs
BLOCK_GROWTH: Final = 4
BLOCKING_BYTES_MAX: Final = 128 << 10  # more than this takes longer to write than a thread takes to wake
FOLLOWER_SHARE_MIN: Final = 0.5  # of the batch before it: a smaller one gathers more before it is closed
READ_BYTES: Final = 4 << 20  # one read while frames are walked


@attrs.frozen(kw_only=True, slots=True)
class LogOptions:
    """How a log is opened, and the sizes of its blocks: each BLOCK_GROWTH times the one before, up to the maximum."""

    block_bytes_first: int = BLOCK_BYTES_FIRST
    block_bytes_max: int = BLOCK_BYTES_MAX
    pieces: PieceSizes = DEFAULT_SIZES  # of zeros ahead of a growing block
    mode: RecoveryMode = RecoveryMode.TORN_TAIL
    accept_lost_hard_state: bool = False  # open without knowing for whom this member voted: it must not vote then
    distrust_cache: bool = False  # a write or fsync has failed before: read everything from the device
    secrets: Secrets | None = None  # of the configuration, for what is encrypted


DEFAULT_OPTIONS: Final = LogOptions()


@attrs.frozen(kw_only=True, slots=True)
class LogStart:
    """What a log begins with: an empty one, or what store/log_open.py found on disk."""

    blocks: BlockList
    copy: Copy
    serial: int  # of the next block
    dropped: trimmed.Ranges
    checkpoints: tuple[int, ...]
    new_directories: tuple[Path, ...]  # whose entries are not durable yet
    fresh: bool  # the first batch must write term and vote
    torn: bool
    hard_state_lost: bool
    report: RecoveryReport
    damaged: tuple[FoundBlock, ...]  # blocks with gaps or a damaged head
    begin_install: Callable[[Manifest, Checkpoint], Staging]
    reopen: Callable[[], "FileLog"]
    reopen_cold: Callable[[], "FileLog"]


@attrs.frozen(kw_only=True, slots=True)
class _InFlight:
    """A batch that the writer has. `last_index` is what it makes durable, unless it is cut meanwhile."""

    token: int
    last_index: int
    frame_bytes: int
    batch: Batch
    backlog: Backlog
    fds: list[int]


class FileLog:
    """Implements GroupLog; made by `open_log`."""

    __slots__ = (  # a dictionary of that many takes 1.6 KB
        "__weakref__",
        "_backlog",
        "_batches",
        "_begin_install",
        "_block_bytes",
        "_blocks",
        "_bytes_written",
        "_checkpoints",
        "_closed",
        "_copy",
        "_dropped",
        "_faulty",
        "_growing",
        "_handed_token",
        "_in_flight",
        "_options",
        "_place",
        "_preparation",
        "_reader",
        "_replaced",
        "_seal",
        "_serial",
        "_submit_wanted",
        "_token",
        "_unwritten_checkpoint",
        "damaged",
        "durable_index",
        "durable_token",
        "failed",
        "hard_state_lost",
        "hard_state_token",
        "lost",
        "may_block",
        "on_durable",
        "recovery_report",
        "reopen",
        "reopen_cold",
        "returned",
    )

    def __init__(self, place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader) -> None:
        self._place = place
        self._options = options
        self._seal = None if place.cipher is None else place.cipher.seal_frame
        self._reader = reader
        self._blocks = start.blocks
        self._copy = start.copy
        self._serial = start.serial
        self._dropped = start.dropped
        self._checkpoints = list(start.checkpoints)  # indexes of those kept or on their way to disk, ascending
        self._unwritten_checkpoint: Checkpoint | None = None
        self._backlog = Backlog()
        self._in_flight: Fifo[_InFlight] = Fifo()  # the second one follows the first
        self._preparation = Preparation(options.pieces)
        self._submit_wanted = False
        self._growing: Block | None = None  # the newest block, once it was started by this process
        self._block_bytes = options.block_bytes_first
        self._token = 0
        self._handed_token = 0
        self._batches = 0
        self._bytes_written = 0
        self._closed = False
        self.may_block = False  # set by a group of one: nobody else can work while its entry is being written
        self.hard_state_token = 0
        self.durable_token = 0
        self.durable_index = self._blocks.last_index
        self.failed: Exception | None = None
        self.on_durable: Callable[[], None] | None = None
        self.hard_state_lost = start.hard_state_lost
        self.recovery_report = start.report
        self._begin_install = start.begin_install
        self.reopen = start.reopen  # after `close`: what is on disk then
        self.reopen_cold = (
            start.reopen_cold
        )  # the same after a failed write: what the device has, not what the cache says
        self.damaged = start.damaged
        self._faulty = ranges_of(start.damaged)
        self.lost: trimmed.Ranges = ()  # faulty entries that no member has: see `give_up`
        self._replaced: trimmed.Ranges = ()  # read from memory, as their place on disk is damaged
        self.returned: dict[int, bytes] = {}  # of these, the entries whose true frames have come back
        self._backlog.new_directories += start.new_directories
        if start.fresh or start.hard_state_lost:
            self._backlog.hard_state = start.copy
            self._token = self.hard_state_token = 1
        if start.torn:
            self._roll(self.last_index + 1)
            self._token += 1

    @property
    def first_index(self) -> int:
        """See GroupLog."""
        return self._blocks.first_index

    @property
    def last_index(self) -> int:
        """See GroupLog."""
        return self._blocks.last_index

    @property
    def boundary(self) -> tuple[int, int]:
        """See GroupLog."""
        return self._blocks.terms.boundary

    @property
    def hard_state(self) -> HardState:
        """See GroupLog."""
        return self._copy.hard_state

    @property
    def identity(self) -> Identity:
        """Whose log it is."""
        return self._place.identity

    @property
    def faulty(self) -> trimmed.Ranges:
        """See GroupLog."""
        return self._faulty

    @property
    def place(self) -> LogPlace:
        """Where the log lives."""
        return self._place

    def token(self) -> int:
        """See GroupLog."""
        return self._token

    def term_at(self, index: int) -> int | None:
        """See GroupLog."""
        return self._blocks.terms.at(index)

    # Changes

    def append(self, entries: Sequence[Entry]) -> None:
        """See GroupLog."""
        self._check_usable()
        seal, overhead_bytes = self._seal, 0 if self._seal is None else SEAL_BYTES
        for entry in entries:
            block, size = self._growing, len(entry.frame) + overhead_bytes
            if block is None or (block.used + size + MARK_BYTES > block.size and block.offsets):
                block = self._roll(entry.index, size)
            elif block.used + size + MARK_BYTES > block.size:
                block.size = block.used + size + MARK_BYTES  # the first frame of a block always fits
            segment = self._segment(block)
            offset = self._blocks.place(entry, overhead_bytes)
            segment.frames.append(entry.frame if seal is None else seal(segment.file.head.serial, offset, entry.frame))
            self._reader.hold(block, offset, entry.frame)
        self._token += 1

    def cut_from(self, index: int) -> None:
        """See GroupLog."""
        self._check_usable()
        self._drop_unwritten(index)
        for block in self._blocks.cut_from(index):
            self._forget(block)
        self._roll(index)
        self.durable_index = min(self.durable_index, index - 1)
        for place, flight in enumerate(self._in_flight):
            self._in_flight[place] = attrs.evolve(flight, last_index=min(flight.last_index, index - 1))
        self._token += 1

    def erase_record(self, block: int, frame_offset: int, record_offset: int) -> None:
        """Overwrite the payload of a record, and headers that no replay reads, in its block (store/erasure.py).

        Readers see it at once; it is on disk when `durable_token` reaches the token. Raises StoreCorrupt, StoreFailed.
        """
        self._check_usable()
        found = self._blocks.numbered(block)
        frame = erasure.erased(self._reader.frame(found, frame_offset), record_offset)
        self._backlog.rewrites[block, frame_offset] = self._reader.rewriting(found, frame_offset, frame)
        self._reader.files[block].revision += 1
        self._token += 1

    def disown(self, block: int, frame_offset: int) -> None:
        """Make a frame unreadable that most members have otherwise: the next opening finds it faulty, and it is mended.

        On disk when `durable_token` reaches the token. Raises StoreCorrupt, StoreFailed.
        """
        self._check_usable()
        found = self._blocks.numbered(block)
        frame = erasure.disowned(self._reader.frame(found, frame_offset))
        item = self._reader.rewriting(found, frame_offset, frame)
        if found.indexes is not None:
            item = attrs.evolve(item, kept=erasure.disowned(item.kept))
        self._backlog.rewrites[block, frame_offset] = item
        self._reader.files[block].revision += 1
        self._token += 1

    def set_hard_state(self, hard_state: HardState) -> None:
        """See GroupLog."""
        self._check_usable()
        assert hard_state.term >= self.hard_state.term
        self._copy = Copy(counter=self._copy.counter + 1, hard_state=hard_state)
        self._backlog.hard_state = self._copy
        self._token += 1
        self.hard_state_token = self._token

    def save_checkpoint(self, index: int, term: int, members: bytes, state: bytes) -> None:
        """See GroupLog."""
        self._check_usable()
        assert index <= self.last_index
        assert term == self.term_at(index)
        waiting = self._backlog.checkpoint
        if waiting is not None and self._checkpoints and self._checkpoints[-1] == waiting.index:
            self._checkpoints.pop()
        assert not self._checkpoints or index >= self._checkpoints[-1]
        if not self._checkpoints or self._checkpoints[-1] != index:
            self._checkpoints.append(index)
        while len(self._checkpoints) > CHECKPOINTS_KEPT:
            self._backlog.unlink.append(self._place.log / checkpoint_name(self._checkpoints.pop(0)))
        checkpoint = Checkpoint(index=index, term=term, members=members, state=state)
        self._backlog.checkpoint = self._unwritten_checkpoint = checkpoint
        self._token += 1

    def trim(self, first_live_seq: int, index: int) -> int:
        """See GroupLog."""
        self._check_usable()
        if not self._checkpoints:
            return 0
        # A block that was never written must not be missing before the record of the trim says so.
        blocks = self._blocks.droppable(first_live_seq, min(index, self._checkpoints[0], self.durable_index))
        if not blocks:
            return 0
        self._drop(blocks)
        return len(blocks)

    def _drop(self, blocks: list[Block]) -> None:
        """Drop blocks on purpose: the record of that is on disk before their files go."""
        gone = [(block.first_index, block.last_index) for block in blocks]
        self._blocks.drop(blocks)
        self._dropped = self._backlog.dropped = trimmed.merged([*self._dropped, *gone])
        for block in blocks:
            self._forget(block)
        self._token += 1

    # Durability

    def submit(self) -> None:
        """See GroupLog."""
        if self.failed is not None or self._closed or self._token == self._handed_token:
            return
        if self._may_start():
            self._start_batch()
        else:
            self._submit_wanted = True

    def _may_start(self) -> bool:
        """True when the backlog may be handed over: nothing is on its way, or it may follow what is."""
        if self._preparation.must_wait(self._backlog):
            return False
        if not self._in_flight:
            return True
        if len(self._in_flight) > 1 or not self._backlog.only_grows:
            return False
        return self._backlog.frame_bytes() >= self._in_flight[0].frame_bytes * FOLLOWER_SHARE_MIN

    def _start_batch(self) -> None:
        self._submit_wanted = False
        backlog, self._backlog = self._backlog, Backlog()
        self._handed_token = self._token
        place = self._place
        batch = place.disk.batch()
        fds: list[int] = []
        try:
            fill(batch, backlog, place, fds)
        except OSError as error:
            self._close_files(fds)
            self._fail(error)
            return
        frame_bytes = backlog.frame_bytes()
        self._bytes_written += frame_bytes
        before = self._in_flight[-1].batch if self._in_flight else None
        self._in_flight.append(
            _InFlight(
                token=self._token,
                last_index=self.last_index,
                frame_bytes=frame_bytes,
                batch=batch,
                backlog=backlog,
                fds=fds,
            )
        )
        piece = self._preparation.next_piece(self._growing, frame_bytes)
        if piece is not None:
            self._prepare(piece)
        if before is not None:
            place.disk.follow(batch, self._batch_done, before)
            return
        may_block = self.may_block and frame_bytes <= BLOCKING_BYTES_MAX
        place.disk.submit(batch, self._batch_done, may_block=may_block)

    def _prepare(self, piece: Piece) -> None:
        """Write zeros where the block will grow (store/prepare.py)."""
        disk = self._place.disk
        try:
            fd = disk.open_file(self._reader.files[piece.block.number].path)
        except OSError:
            self._preparation.done()  # nothing was written, so nothing is lost: the block grows a little slower
            return
        batch = disk.batch()
        self._preparation.fill(batch, fd)
        disk.submit(batch, partial(self._prepared, fd), aside=True)

    def _prepared(self, fd: int, error: OSError | None) -> None:
        """A piece is prepared. An error may be one of the frames', so it is final.

        The kernel tells an error once to each descriptor that was open: with one of its own this fsync cannot take the
        news away from the one that the frames wait for.
        """
        self._place.disk.close_file(fd)
        self._preparation.done()
        if self._closed:
            self._close_when_idle()
        elif error is not None:
            self._fail(error)
        elif self.failed is None and self._submit_wanted and self._may_start():
            self._start_batch()

    def _batch_done(self, error: OSError | None) -> None:
        """The writer has finished the batch: what was in it is on disk, or the log has failed."""
        done = self._in_flight.popleft()
        self._close_files(done.fds)
        if self._closed:
            self._close_when_idle()
            return
        if error is not None:
            self._fail(error)
            return
        if self.failed is not None:
            return
        self._settle(done)
        if self._submit_wanted and self._may_start():
            self._start_batch()
        if self.on_durable is not None:
            self.on_durable()

    def _settle(self, done: _InFlight) -> None:
        """Account for a batch that is on disk."""
        assert done.token > self.durable_token
        self.durable_token = done.token
        self.durable_index = done.last_index
        self._batches += 1
        for segment in done.backlog.segments:
            segment.file.written = segment.end
            offset = segment.offset
            for frame in segment.frames:
                self._reader.release(segment.block, offset)
                offset += len(frame)
        for key, item in done.backlog.rewrites.items():
            self._reader.rewritten(key, item.frame)
        if done.backlog.checkpoint is self._unwritten_checkpoint:
            self._unwritten_checkpoint = None

    def _fail(self, error: OSError) -> None:
        self.failed = error
        if self.on_durable is not None:
            self.on_durable()

    def _close_files(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self._place.disk.close_file(fd)

    def _check_usable(self) -> None:
        if self.failed is not None:
            raise StoreFailed(f"{self._place.group}: takes no more writes after: {self.failed}") from self.failed
        assert not self._closed

    # Reads

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """See GroupLog."""
        assert self.first_index <= lo <= hi <= self.last_index
        found: list[Entry] = []
        left = bytes_max
        while lo <= hi:
            block = self._blocks.find(lo)
            assert block is not None
            frame = self._reader.held(block, block.offset_of(lo))
            some = [entry_of(frame)] if frame else self._reader.run(block, lo, self._sound_to(lo, hi, block), left)
            for entry in some:
                left -= len(entry.frame)
                if found and left < 0:
                    return found
                found.append(entry)
            lo += len(some)
        return found

    def _sound_to(self, lo: int, hi: int, block: Block) -> int:
        """The last index to read from `lo` on in one go: inside the block, before the next entry without a frame."""
        hi = min(hi, block.last_index)
        return min((first - 1 for first, _ in (*self._faulty, *self._replaced) if lo < first <= hi), default=hi)

    def give_up(self, ranges: trimmed.Ranges, frames: Mapping[int, bytes] = MappingProxyType({})) -> None:
        """Go on without these faulty entries, except for those whose verified frames are given.

        What nobody has is `lost`. Where it stood, `entries` has no-ops from now on, the same on every member that gives
        it up; but up to the newest checkpoint nobody needs it, so the log begins behind it: another member may hold the
        true entry, applied. The sequences of lost messages are not used again: the last of the no-ops, when nothing
        sound follows, says from where the stream goes on. The disk stays as it is: the next opening finds the same.
        """
        settled = [index for first, last in ranges for index in range(first, last + 1)]
        for index in settled:
            block = self._blocks.find(index)
            assert block is not None
            self._reader.hold(block, block.offset_of(index), frames.get(index) or self.substitute(index))
        gone = [index for index in settled if index not in frames]
        self.returned.update((index, frames[index]) for index in settled if index in frames)
        self.lost = trimmed.merged([*self.lost, *((index, index) for index in gone)])
        self._replaced = trimmed.merged([*self._replaced, *ranges])
        left = [index for low, high in self._faulty for index in range(low, high + 1)]
        self._faulty = trimmed.merged(
            (index, index) for index in left if not trimmed.covers(self._replaced, index, index)
        )
        checkpoint = self.load_checkpoint()
        covered = [index for index in gone if checkpoint is not None and index <= checkpoint.index]
        if covered:
            self._blocks.begin_after(covered[-1])
        for block in self._blocks:
            if block.last_seq == MAX_SEQ:
                found = self.frames(block.first_index, block.last_index)
                block.last_seq = max((last_seq_of(entry) for _, entry in found), default=0)

    def substitute(self, index: int) -> bytes:
        """What stands for a faulty entry that is given up: a no-op, or messages of which there are none."""
        term = self.term_at(index) or self._term_below(index)  # below the boundary nobody asks for its term
        at_end = index == self.last_index
        return seal(
            Kind.MESSAGES if at_end else Kind.NOOP,
            index=index,
            term=term,
            incarnation=self.identity.incarnation,
            body=b"",
            first_seq=self._seq_behind(index) if at_end else 0,
        )

    def _term_below(self, index: int) -> int:
        """The term of what comes before an entry in its block, for one that lies below `first_index`."""
        block = self._blocks.find(index)
        assert block is not None
        for number in reversed(range(block.number_of(index))):
            before = block.index_of(number)
            if not trimmed.covers(self._faulty, before, before):
                return self._reader.run(block, before, before, 0)[0].term
        return block.boundary_term

    def _seq_behind(self, index: int) -> int:
        """A sequence above every one that the entry at the end of the log can have used."""
        block = self._blocks.find(index)
        assert block is not None
        known = max((last_seq_of(entry) for _, entry in self.frames(1, index)), default=0)
        lowest = next(first for first, last in self._faulty if first <= index <= last)
        start = block.offset_of(max(lowest, block.first_index))
        return known + 1 + (block.used - start) // RECORD_HEADER_BYTES

    def locate(self, index: int) -> FrameRef | None:
        """See GroupLog."""
        block = self._blocks.find(index)
        return None if block is None else FrameRef(block.number, block.offset_of(index))

    def frame_at(self, block: int, offset: int) -> bytes:
        """See GroupLog."""
        return self._reader.frame(self._blocks.numbered(block), offset)

    def read_record(self, block: int, frame_offset: int, record_offset: int) -> tuple[int, int, bytes, bytes, bytes]:
        """See GroupLog."""
        return record_at(self._reader.frame(self._blocks.numbered(block), frame_offset), record_offset)

    def frames(self, lo: int, hi: int) -> Iterator[tuple[FrameRef, Entry]]:
        """See GroupLog."""
        for block in list(self._blocks):
            index, last = block.next_held(max(lo, block.first_index)), min(hi, block.last_index)
            while index <= last:
                fault = next((bounds for bounds in self._faulty if bounds[0] <= index <= bounds[1]), None)
                if fault is not None:
                    index = block.next_held(fault[1] + 1)
                    continue
                for entry in self._reader.run(block, index, self._sound_to(index, last, block), READ_BYTES):
                    yield FrameRef(block.number, block.offset_of(entry.index)), entry
                    index = block.next_held(entry.index + 1)

    def load_checkpoint(self) -> Checkpoint | None:
        """See GroupLog. What was not written yet counts too."""
        return self._unwritten_checkpoint or self._load_durable_checkpoint()

    def _load_durable_checkpoint(self) -> Checkpoint | None:
        damage: list[str] = []
        unwritten = self._unwritten_checkpoint
        for index in reversed(self._checkpoints):
            if unwritten is not None and index == unwritten.index:
                continue
            path = self._place.log / checkpoint_name(index)
            try:
                data = read_file(self._place.disk, path)
                return checkpoint_file.unpack(data, self.identity, what=str(path), cipher=self._place.cipher)
            except StoreCorrupt as error:
                damage.append(str(error))
        if damage:
            raise StoreCorrupt("; ".join(damage))
        return None

    def manifest(self, first_live_seq: int) -> tuple[Manifest, Checkpoint] | None:
        """See GroupLog."""
        checkpoint = self._load_durable_checkpoint()
        if checkpoint is None:
            return None
        blocks = list(self._blocks)
        manifest = make_manifest(blocks, checkpoint, first_live_seq=first_live_seq, head_bytes=BLOCK_HEAD_BYTES)
        return manifest, checkpoint

    def read_chunk(self, block: int, offset: int, size: int) -> bytes:
        """See GroupLog."""
        return self._reader.piece(self._blocks.numbered(block), BLOCK_HEAD_BYTES + offset, size)

    def begin_install(self, manifest: Manifest, checkpoint: Checkpoint) -> Staging:
        """See GroupLog."""
        return self._begin_install(manifest, checkpoint)

    def statistics(self) -> LogStatistics:
        """See GroupLog."""
        return LogStatistics(
            first_index=self.first_index,
            last_index=self.last_index,
            durable_index=self.durable_index,
            blocks=len(self._blocks),
            bytes_used=sum(block.used for block in self._blocks),
            bytes_on_disk=sum(block.size if block is self._growing else block.used for block in self._blocks),
            batches=self._batches,
            bytes_written=self._bytes_written,
            checkpoint_index=self._checkpoints[-1] if self._checkpoints else 0,
            pieces_prepared=self._preparation.pieces_done,
            failed=str(self.failed) if self.failed else None,
        )

    def close(self) -> None:
        """See GroupLog. A batch that the writer has is still finished; nobody is told."""
        if self._closed:
            return
        self._closed = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        """Give the descriptors back once no thread uses them."""
        if not self._in_flight and self._preparation.piece is None:
            self._close_files(self._backlog.close)
            self._reader.close()

    def is_compacted(self, index: int) -> bool:
        """See GroupLog."""
        block = self._blocks.find(index)
        return block is not None and block.indexes is not None

    # Compaction, see there

    @property
    def checkpoint_floor(self) -> int:
        """The index that both checkpoints kept are at or above, durably; 0 while there are not two."""
        settled = self._unwritten_checkpoint is None and len(self._checkpoints) == CHECKPOINTS_KEPT
        return self._checkpoints[0] if settled else 0

    def compaction_source(self, number: int, index: int) -> Source | None:
        """A block that may be written anew because all its entries lie at or below `index`; None when it may not be."""
        block = self._settled_block(number)
        if block is None or not block.offsets or block.last_index > min(index, self.durable_index):
            return None
        file = self._reader.files[number]
        return Source(
            number=number,
            path=file.path,
            head=file.head,
            last_index=block.last_index,
            offsets=block.offsets,
            places=block.offsets if block.stored is None else block.stored,
            indexes=block.indexes,
            used=block.used,
            revision=file.revision,
        )

    def exchange(self, compacted: Compacted) -> bool:
        """Put the new file of a block in place of the old one; False when the block has changed or gone meanwhile.

        Either file is right after a crash: the directory may be fsynced later.
        """
        source = compacted.source
        block = self._settled_block(source.number)
        if block is None or self._reader.files[source.number].revision != source.revision:
            return False
        self._place.disk.perform(replacing(self._place.disk, source.path))
        self._reader.reload(source.number, compacted.used)
        block.sealed_last_index = block.last_index
        block.offsets, block.stored, block.indexes = compacted.offsets, compacted.places, compacted.indexes
        block.used = compacted.used
        self._blocks.note_holes()
        return True

    @property
    def growing(self) -> tuple[int | None, int]:
        """(number of the block that grows, bytes used of it); None before the first entry of this process."""
        block = self._growing
        return (None, 0) if block is None or not block.offsets else (block.number, block.used)

    def roll_early(self) -> int:
        """Let the next entry begin a small block, although the one that grows is not full; returns 1."""
        self._check_usable()
        self._block_bytes = self._options.block_bytes_first
        self._roll(self.last_index + 1)
        self._token += 1
        return 1

    def has_droppable(self, first_live_seq: int) -> bool:
        """Whether a trim gives something back once checkpoints allow it."""
        return bool(self._blocks.droppable(first_live_seq, self.durable_index))

    def drop_dead(self, numbers: Sequence[int], index: int) -> int:
        """Drop blocks that hold nothing live, with all entries at or below `index`, as `trim` does; return how many."""
        self._check_usable()
        found = [self._settled_block(number) for number in numbers]
        limit = min(index, self.durable_index)
        blocks = [block for block in found if block is not None and block.last_index <= limit]
        if blocks:
            self._drop(blocks)
        return len(blocks)

    def _settled_block(self, number: int) -> Block | None:
        """A block that is on disk, whole and left alone; None for any other."""
        if self.failed is not None or self._closed or self.lost or number not in self._reader.files:
            return None
        block = self._blocks.numbered(number)
        pending = [self._backlog, *(flight.backlog for flight in self._in_flight)]
        is_touched = any(
            any(retired is block for retired, _ in backlog.retired)
            or any(segment.block is block for segment in backlog.segments)
            or any(place[0] == number for place in backlog.rewrites)
            for backlog in pending
        )
        is_settled = not is_touched and block is not self._blocks.newest and block.last_seq != MAX_SEQ
        return block if is_settled else None

    def scrub_targets(self) -> list[Target]:
        """The blocks that no longer grow, are on disk and are not being overwritten."""
        rewriting = {number for number, _ in self._backlog.rewrites}
        for flight in self._in_flight:
            rewriting |= {number for number, _ in flight.backlog.rewrites}
        return [
            Target(
                path=self._reader.files[block.number].path,
                identity=self.identity,
                first_index=block.first_index,
                last_index=block.last_index,
                size=block.used,
            )
            for block in self._blocks
            if block is not self._growing and block.last_seq != MAX_SEQ and block.number not in rewriting
            if block.last_index <= self.durable_index and not self.lost
        ]

    # Blocks

    def _roll(self, index: int, frame_bytes: int = 0) -> Block:
        """Retire the newest block and start another, whose first entry is `index`."""
        old = self._blocks.newest if len(self._blocks) else None
        if old is not None and not old.offsets:
            self._blocks.forget_newest()
            self._forget(old)
        elif old is not None and old.number in self._reader.files:
            self._backlog.retired.append((old, self._reader.files[old.number]))
        size = max(self._block_bytes, BLOCK_HEAD_BYTES + frame_bytes + MARK_BYTES)
        self._block_bytes = min(self._block_bytes * BLOCK_GROWTH, self._options.block_bytes_max)
        head = BlockHead(serial=self._serial, first_index=index, boundary_term=self._blocks.terms.last_term)
        self._serial += 1
        block = self._blocks.open_block(index, size=size, used=BLOCK_HEAD_BYTES)
        path, is_sealed = self._place.log / block_name(head), self._seal is not None
        self._reader.files[block.number] = BlockFile(path=path, head=head, sealed=is_sealed)
        self._growing = block
        self._segment(block, create=True)
        return block

    def _segment(self, block: Block, *, create: bool = False) -> Segment:
        """The piece of the backlog to which the next frame of `block` goes."""
        segments = self._backlog.segments
        if not segments or segments[-1].block is not block:
            file = self._reader.files[block.number]
            first_index = block.last_index + 1
            segments.append(Segment(block=block, file=file, create=create, offset=block.used, first_index=first_index))
        return segments[-1]

    def _drop_unwritten(self, index: int) -> None:
        """Take frames from `index` on out of the backlog; their places are given back."""
        for segment in self._backlog.segments:
            offset = segment.offset
            for number, frame in enumerate(segment.frames):
                if segment.first_index + number >= index:
                    self._reader.release(segment.block, offset)
                offset += len(frame)
            if segment.first_index + len(segment.frames) > index:
                segment.keep_below(index)
                segment.block.used = segment.end

    def _forget(self, block: Block) -> None:
        """Give up a block: what waits for it is not written, what was written goes."""
        segments = [segment for segment in self._backlog.segments if segment.block is block]
        self._backlog.segments = [segment for segment in self._backlog.segments if segment.block is not block]
        self._backlog.retired = [item for item in self._backlog.retired if item[0] is not block]
        for key in [key for key in self._backlog.rewrites if key[0] == block.number]:
            del self._backlog.rewrites[key]
        file = self._reader.forget(block.number)
        if not any(segment.create for segment in segments):
            self._backlog.unlink.append(file.path)
        if file.fd is not None:
            self._backlog.close.append(file.fd)
            file.fd = None
        if self._growing is block:
            self._growing = None
