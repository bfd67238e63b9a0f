"""A group's log in memory, for streams with memory storage and for tests of the layers above.

It implements the interface of store/port.py without fsync: submitted changes count as durable immediately. A restart
loses the log with term and vote, so the member must rejoin as a learner (decision 34).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from jetraft.store.blocks.block import Block, BlockList, block_list, entry_of
from jetraft.store.blocks.terms import TermRuns
from jetraft.store.frames._frame import Scan, parse_header, record_at
from jetraft.store.log.snapshot import Arrivals, InstallRefusedError, covers, make_manifest, verify_part
from jetraft.store.model.files.manifest import Manifest, Part
from jetraft.store.port import (
    AnyCheckpoint,
    Checkpoint,
    DeferredState,
    Entry,
    FrameRef,
    FrameRun,
    HardState,
    LogProgress,
    LogStatistics,
    checkpoint_of,
    run_of_one,
)

BLOCK_BYTES = 1 << 20  # a trim frees memory in these steps; small, because memory is scarce


class MemLog:
    """Implements GroupLog. With `durable_on_submit=False`, a test completes a batch by `complete()`."""

    def __init__(self, *, block_bytes: int = BLOCK_BYTES, durable_on_submit: bool = True) -> None:
        self._block_bytes = block_bytes
        self._durable_on_submit = durable_on_submit
        self._blocks = BlockList([], TermRuns(0, 0))
        self._frames: dict[int, list[Entry]] = {}  # by block number
        self._checkpoints: list[AnyCheckpoint] = []  # ascending; at most two, as in files
        self._hard_state = HardState(term=0, vote=None)
        self._submitted = (0, 0)  # token and last index of what complete() makes durable
        self._batches = 0
        self._bytes_written = 0
        self.damaged_entries: tuple[tuple[int, int], ...] = ()  # memory is assumed to be sound
        self.lost: tuple[tuple[int, int], ...] = ()
        self.sums_records = False
        self.hard_state_token = 0
        self.progress = LogProgress()
        self.is_starved = False
        self.on_durable: Callable[[], None] | None = None

    @property
    def durable_token(self) -> int:
        """See GroupLog."""
        return self.progress.durable_token

    @property
    def durable_index(self) -> int:
        """See GroupLog."""
        return self.progress.durable_index

    @property
    def failed(self) -> Exception | None:
        """See GroupLog. Memory does not fail; a test sets it in `progress`."""
        return self.progress.failed

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
        return self._hard_state

    def term_at(self, index: int) -> int | None:
        """See GroupLog."""
        return self._blocks.terms.at(index)

    def term_bounds(self, index: int) -> tuple[int, int] | None:
        """See GroupLog."""
        return self._blocks.terms.bounds(index)

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """See GroupLog."""
        assert self.first_index <= lo <= hi <= self.last_index
        found: list[Entry] = []
        found_bytes = 0
        for _, entry in self.frames(lo, hi):
            found_bytes += len(entry.frame)
            if found and found_bytes > bytes_max:
                break
            found.append(entry)
        return found

    def append(self, entries: Sequence[Entry]) -> None:
        """See GroupLog."""
        for entry in entries:
            block = self._block_for(entry)
            self._blocks.place(entry)
            self._frames[block.number].append(entry)
            self._bytes_written += len(entry.frame)
        self.progress.token += 1

    def _block_for(self, entry: Entry) -> Block:
        """The newest block, or a new one when it is full. The first frame of a block always fits."""
        if len(self._blocks):
            newest = self._blocks.newest
            if not newest.offsets or newest.used + len(entry.frame) <= newest.size:
                return newest
        block = self._blocks.open_block(entry.index, size=self._block_bytes, used=0)
        self._frames[block.number] = []
        return block

    def cut_from(self, index: int) -> None:
        """See GroupLog."""
        for block in self._blocks.cut_from(index):
            del self._frames[block.number]
        if len(self._blocks):
            shortened = self._blocks.newest
            del self._frames[shortened.number][len(shortened.offsets) :]
        self._frames[self._blocks.open_block(index, size=self._block_bytes, used=0).number] = []
        self.progress.durable_index = min(self.durable_index, index - 1)
        self._submitted = (self._submitted[0], min(self._submitted[1], index - 1))
        self.progress.token += 1

    def set_hard_state(self, hard_state: HardState) -> None:
        """See GroupLog."""
        assert hard_state.term >= self._hard_state.term
        self._hard_state = hard_state
        self.progress.token += 1
        self.hard_state_token = self.progress.token

    def is_compacted(self, index: int) -> bool:
        """See GroupLog. Always False: memory is freed by whole blocks."""
        del index
        return False

    def token(self) -> int:
        """See GroupLog."""
        return self.progress.token

    def note_floor(self) -> bool:
        """See GroupLog. Nothing to record, because a restart loses the log."""
        return False

    @property
    def is_secure(self) -> bool:
        """See GroupLog."""
        return True

    def would_block(self, bytes_max: int) -> bool:
        """See GroupLog."""
        del bytes_max
        return False

    def submit(self, *, may_block: bool = False) -> None:
        """See GroupLog. Calls `on_durable` before it returns, unless durability is left to `complete()`."""
        del may_block
        if self._submitted[0] == self.progress.token:
            return
        self._submitted = (self.progress.token, self.last_index)
        if self._durable_on_submit:
            self.complete()

    def complete(self) -> None:
        """Make everything that was submitted durable, and call `on_durable`."""
        if self.durable_token == self._submitted[0]:
            return
        self.progress.durable_token, self.progress.durable_index = self._submitted
        self._batches += 1
        if self.on_durable is not None:
            self.on_durable()

    def locate(self, index: int) -> FrameRef | None:
        """See GroupLog."""
        found = self._blocks.locate(index)
        return None if found is None else FrameRef(*found)

    def frame_at(self, block: int, offset: int) -> bytes:
        """See GroupLog."""
        holder = self._blocks.numbered(block)
        index = holder.index_at(offset)
        if index is None:
            raise KeyError((block, offset))
        return self._frames[block][index - holder.first_index].frame

    def read_record(self, block: int, frame_offset: int, record_offset: int) -> tuple[int, int, bytes, bytes, bytes]:
        """See GroupLog."""
        return record_at(self.frame_at(block, frame_offset), record_offset)

    def frames(self, lo: int, hi: int) -> Iterator[tuple[FrameRef, Entry]]:
        """See GroupLog."""
        for block in list(self._blocks):
            first, last = max(lo, block.first_index), min(hi, block.last_index)
            for index in range(first, last + 1):
                entry = self._frames[block.number][index - block.first_index]
                yield FrameRef(block.number, block.offset_of(index)), entry

    def runs(self, lo: int, hi: int) -> Iterator[FrameRun]:
        """See GroupLog."""
        for place, entry in self.frames(lo, hi):
            yield run_of_one(entry, place)

    def save_checkpoint(self, index: int, term: int, members: bytes, state: bytes | DeferredState) -> None:
        """See GroupLog."""
        assert not self._checkpoints or index >= self._checkpoints[-1].index
        assert index <= self.last_index
        self._checkpoints = [*self._checkpoints[-1:], checkpoint_of(index, term, members, state)]
        self.progress.token += 1

    def load_checkpoint(self) -> Checkpoint | None:
        """See GroupLog."""
        return self._checkpoints[-1].whole() if self._checkpoints else None

    def trim(self, first_live_seq: int, index: int) -> int:
        """See GroupLog."""
        if not self._checkpoints:
            return 0
        blocks = self._blocks.droppable(first_live_seq, min(index, self._checkpoints[0].index, self.durable_index))
        self._blocks.drop(blocks)
        for block in blocks:
            del self._frames[block.number]
        return len(blocks)

    def manifest(self, first_live_seq: int) -> tuple[Manifest, Checkpoint] | None:
        """See GroupLog."""
        checkpoint = self.load_checkpoint()
        return None if checkpoint is None else (self.manifest_of(checkpoint, first_live_seq), checkpoint)

    def checkpoint_reader(self) -> Callable[[], Checkpoint | None]:
        """See GroupLog."""
        return partial(lambda checkpoint: checkpoint, self.load_checkpoint())

    def manifest_of(self, checkpoint: Checkpoint, first_live_seq: int) -> Manifest:
        """See GroupLog."""
        return make_manifest(self._blocks, checkpoint, first_live_seq=first_live_seq, body_bytes=Block.span_end)

    def read_chunk(self, block: int, offset: int, size: int) -> bytes:
        """See GroupLog."""
        holder = self._blocks.numbered(block)
        first = bisect_right(holder.offsets, offset) - 1
        data = bytearray()
        skip = offset - holder.offsets[first]
        for entry in self._frames[block][first:]:
            data += entry.frame
            if len(data) >= skip + size:
                break
        return bytes(data[skip : skip + size])

    def begin_install(self, manifest: Manifest, checkpoint: Checkpoint) -> "MemStaging":
        """See GroupLog."""
        return MemStaging(self, manifest, checkpoint)

    def adopt(self, parts: Sequence[tuple[Part, bytearray, Scan]], checkpoint: Checkpoint) -> "MemLog":
        """A log made of these parts, with the term and vote of this one."""
        log = MemLog(block_bytes=self._block_bytes, durable_on_submit=self._durable_on_submit)
        found: list[tuple[Block, list[tuple[int, int]]]] = []
        for number, (part, data, walk) in enumerate(parts):
            block = Block(
                number=number,
                first_index=part.first_index,
                boundary_term=part.boundary_term,
                size=len(data),
                used=len(data),
                offsets=walk.offsets,
                last_seq=walk.last_seq,
            )
            found.append((block, walk.terms))
            ends = [*walk.offsets[1:], len(data)]
            frames = [bytes(data[start:end]) for start, end in zip(walk.offsets, ends, strict=True)]
            log._frames[number] = [entry_of(frame) for frame in frames]
        after = checkpoint.index + 1
        end = Block(number=len(parts), first_index=after, boundary_term=checkpoint.term, size=self._block_bytes, used=0)
        log._frames[end.number] = []
        log._blocks = block_list([*found, (end, [])])
        log._hard_state = self._hard_state
        log._checkpoints = [checkpoint]
        log.progress.durable_index = checkpoint.index
        return log

    def statistics(self) -> LogStatistics:
        """See GroupLog."""
        return LogStatistics(
            first_index=self.first_index,
            last_index=self.last_index,
            durable_index=self.durable_index,
            blocks=len(self._blocks),
            bytes_used=sum(block.used for block in self._blocks),
            bytes_on_disk=0,
            batches=self._batches,
            bytes_written=self._bytes_written,
            pieces_prepared=0,
            checkpoint_index=self._checkpoints[-1].index if self._checkpoints else 0,
            failed=str(self.failed) if self.failed else None,
        )

    def close(self) -> None:
        """See GroupLog."""
        self._frames.clear()


class MemStaging:
    """Implements Staging."""

    def __init__(self, old: MemLog, manifest: Manifest, checkpoint: Checkpoint) -> None:
        assert (manifest.index, manifest.term) == (checkpoint.index, checkpoint.term)
        self._old = old
        self._manifest = manifest
        self._checkpoint = checkpoint
        self._parts = [bytearray() for _ in manifest.parts]
        self._arrivals = Arrivals(manifest, self._write)

    def _write(self, number: int, offset: int, data: bytes) -> None:
        self._parts[number][offset:] = data

    def missing(self) -> tuple[int, int, int] | None:
        """See Staging."""
        return self._arrivals.missing()

    def put_chunk(self, block: int, offset: int, data: bytes) -> None:
        """See Staging."""
        self._arrivals.put_chunk(block, offset, data)

    def abandon(self) -> None:
        """See Staging."""
        self._parts.clear()

    def finish(self) -> MemLog:
        """See Staging. Does not block."""
        assert self.missing() is None
        if covers(self._old, self._manifest.index, self._manifest.term):
            raise InstallRefusedError(f"the log in memory has come to {self._manifest.index} by itself")
        verified = []
        for part, data in zip(self._manifest.parts, self._parts, strict=True):
            walk = verify_part(
                data, part, offset=0, incarnation=parse_header(data).incarnation, what="a part in memory"
            )
            verified.append((part, data, walk))
        return self._old.adopt(verified, self._checkpoint)
