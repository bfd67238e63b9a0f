"""The ordered log of one group in files: append, cut, trim, term and vote, checkpoints, and reads by index or by place.

`FileLog` delegates to its parts:

    LogTail          the end of the log: the block that grows, frames that wait      store/log/tail.py
    Durability       batches for the writer, term and vote, what is on disk          store/log/durability.py
    RetainedCheckpoints  the checkpoints to start from                               store/log/retained_checkpoints.py
    Damage           entries that cannot be read, and what takes their place         store/log/damage.py
    LogRepair        what a repair asks of a damaged log, and does to it             store/log/log_repair.py
    EntryReader      reads by index and by place                                     store/log/entry_reader.py
    BlockUpkeep      trims, compaction, erasure, scrub targets                       store/log/upkeep.py
    CopySource       what other members copy                                         store/log/copy_source.py

A part gets what it needs in its constructor. They share the list of blocks, the reader of their frames, and a small
`LogState` (store/log/state.py); everything else is private to a part. `durability`, `repair` and `upkeep` are used
directly by the few modules that concern them; what every log does is in `GroupLog` and here.

Appended entries can be read at once; `submit` makes them durable. The (block, offset) of a frame never changes.
store/log/opening.py opens a log, store/log/recovery.py examines it; the layout is in store/frames/format.py.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import attrs

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames.format import Identity
from jetraft.store.ledger.ledger_records import GroupState
from jetraft.store.log.copy_source import CopySource
from jetraft.store.log.damage import Damage
from jetraft.store.log.durability import Durability
from jetraft.store.log.entry_reader import EntryReader
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.recovery import ranges_of
from jetraft.store.log.retained_checkpoints import RetainedCheckpoints
from jetraft.store.log.snapshot import covers
from jetraft.store.log.start import LogOptions, LogStart
from jetraft.store.log.state import LogState
from jetraft.store.log.tail import LogTail
from jetraft.store.log.upkeep import BlockUpkeep
from jetraft.store.log.write_queue import LogPlace
from jetraft.store.model.files import index_ranges
from jetraft.store.model.files.manifest import Manifest
from jetraft.store.port import (
    Checkpoint,
    DeferredState,
    Entry,
    FrameRef,
    FrameRun,
    HardState,
    LogStatistics,
    Staging,
    checkpoint_of,
)

if TYPE_CHECKING:
    from jetraft.store.log.log_repair import LogRepair


class OpenAgain(Protocol):
    """Opens a log again, or the log that was installed in its place. One for all logs."""

    def __call__(
        self, place: LogPlace, cache: BlockCache, options: LogOptions, *, installed: GroupState | None = None
    ) -> "FileLog":
        """See `open_log`."""
        ...


class FileLog:
    """Implements GroupLog; made by `open_log`."""

    __slots__ = (  # no dictionary: it would take 1.6 KB for each log
        "__weakref__",
        "_blocks",
        "_checkpoints",
        "_copies",
        "_damage",
        "_entries",
        "_open_again",
        "_options",
        "_reader",
        "_state",
        "_tail",
        "damaged_blocks",
        "durability",
        "hard_state_lost",
        "progress",
        "recovery_report",
        "sums_records",
        "upkeep",
    )

    def __init__(
        self, place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader, *, open_again: "OpenAgain"
    ) -> None:
        """Make the parts. Nothing is written here: what the opening left to write is queued for the first batch."""
        blocks = start.blocks
        self._blocks = blocks
        self._reader = reader
        self._options = options
        self._open_again = open_again
        self.progress = self._state = state = LogState(place=place)
        self._tail = LogTail(state, blocks, reader, options, serial=start.serial)
        self._checkpoints = RetainedCheckpoints(place, start.checkpoints, start.founding)
        self._damage = Damage(blocks, reader, place.identity.incarnation, ranges_of(start.damaged_blocks))
        self._entries = EntryReader(state, blocks, reader, self._damage)
        self._copies = CopySource(blocks, reader, self._damage)
        self.durability = Durability(
            state,
            blocks,
            reader,
            self._checkpoints,
            hard_state=start.hard_state,
            floor_index=start.floor_index,
            pieces=options.pieces,
            begun_bytes_max=options.begun_bytes_max,
        )
        self.upkeep = BlockUpkeep(
            state,
            blocks,
            reader,
            tail=self._tail,
            durability=self.durability,
            checkpoints=self._checkpoints,
            damage=self._damage,
            dropped=start.dropped,
        )
        self.sums_records = place.cipher is None  # an encrypted frame can only be decrypted as a whole
        self.damaged_blocks = start.damaged_blocks
        self.hard_state_lost = start.hard_state_lost
        self.recovery_report = start.report
        self._begin(start)

    def _begin(self, start: LogStart) -> None:
        """Queue what the opening left to write, and decide where the next entry goes."""
        if start.damaged_blocks:
            promised = 0 if start.hard_state_lost else start.hard_state.term
            self._damage.identify(start.identities, promised or None)
        if start.begun:  # for the first block, which comes with the next entry; no batch is due
            self._tail.append(start.begun)
            self.durability.found_begun()
        queue = self._state.write_queue
        directories = queue.new_directories if start.has_files else queue.empty_directories
        directories += start.new_directories
        queue.facts += start.facts
        queue.unlink += start.superfluous
        if start.facts:
            self._state.token = self.durability.hard_state_token = 1
        if start.continues:
            self._tail.continue_newest()
        if start.torn and not start.damaged_blocks:  # otherwise the boundary term of the new block may be unknown
            self._tail.roll(self.last_index + 1)
            self._state.token += 1

    # The end of the log.

    @property
    def first_index(self) -> int:
        """See GroupLog."""
        return self._blocks.first_index

    @property
    def last_index(self) -> int:
        """See GroupLog."""
        return self._blocks.terms.last_index

    @property
    def boundary(self) -> tuple[int, int]:
        """See GroupLog."""
        return self._blocks.terms.boundary

    def term_at(self, index: int) -> int | None:
        """See GroupLog."""
        return self._blocks.terms.at(index)

    def term_bounds(self, index: int) -> tuple[int, int] | None:
        """See GroupLog."""
        return self._blocks.terms.bounds(index)

    def append(self, entries: Sequence[Entry]) -> None:
        """See GroupLog."""
        self._tail.append(entries)

    def cut_from(self, index: int) -> None:
        """See GroupLog."""
        self._tail.cut_from(index)
        self.durability.note_cut(index)

    @property
    def growing(self) -> tuple[int | None, int]:
        """(number, bytes used) of the block that grows; (None, 0) until this process has appended to one."""
        block = self._state.growing
        return (None, 0) if block is None or not block.offsets else (block.number, block.used)

    def roll_early(self) -> int:
        """Let the next entry start a small block, although the current one is not full; returns 1."""
        self._tail.roll_early()
        return 1

    # Durability.

    @property
    def on_durable(self) -> Callable[[], None] | None:
        """See GroupLog."""
        return self.durability.on_durable

    @on_durable.setter
    def on_durable(self, call: Callable[[], None] | None) -> None:
        self.durability.on_durable = call

    @property
    def hard_state(self) -> HardState:
        """See GroupLog."""
        return self.durability.hard_state

    @property
    def hard_state_token(self) -> int:
        """See GroupLog."""
        return self.durability.hard_state_token

    @property
    def durable_token(self) -> int:
        """See GroupLog."""
        return self._state.durable_token

    @property
    def durable_index(self) -> int:
        """See GroupLog."""
        return self._state.durable_index

    @property
    def failed(self) -> Exception | None:
        """See GroupLog."""
        return self._state.failed

    @property
    def is_starved(self) -> bool:
        """See GroupLog."""
        return self.durability.is_starved

    def token(self) -> int:
        """See GroupLog."""
        return self._state.token

    def set_hard_state(self, hard_state: HardState) -> None:
        """See GroupLog."""
        self.durability.set_hard_state(hard_state)

    def note_floor(self) -> bool:
        """See GroupLog."""
        return self.durability.note_floor()

    @property
    def is_secure(self) -> bool:
        """See GroupLog."""
        return self.durability.is_secure

    def would_block(self, bytes_max: int) -> bool:
        """See GroupLog."""
        return self.durability.would_block(bytes_max)

    def submit(self, *, may_block: bool = False) -> None:
        """See GroupLog."""
        self.durability.submit(may_block=may_block)

    def close(self) -> None:
        """See GroupLog. Batches in flight still finish; an `on_durable` that is set afterwards is called at the end."""
        self.durability.close()

    # Reads.

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """See GroupLog."""
        return self._entries.entries(lo, hi, bytes_max)

    def locate(self, index: int) -> FrameRef | None:
        """See GroupLog."""
        return self._entries.locate(index)

    def frame_at(self, block: int, offset: int) -> bytes:
        """See GroupLog."""
        return self._entries.frame_at(block, offset)

    def read_record(self, block: int, frame_offset: int, record_offset: int) -> tuple[int, int, bytes, bytes, bytes]:
        """See GroupLog."""
        return self._entries.read_record(block, frame_offset, record_offset)

    def is_compacted(self, index: int) -> bool:
        """See GroupLog."""
        return self._entries.is_compacted(index)

    def frames(self, lo: int, hi: int) -> Iterator[tuple[FrameRef, Entry]]:
        """See GroupLog."""
        return self._damage.walk(lo, hi)

    def runs(self, lo: int, hi: int) -> Iterator[FrameRun]:
        """See GroupLog."""
        return self._damage.walk_stored(lo, hi)

    # Checkpoints and copies.

    def save_checkpoint(self, index: int, term: int, members: bytes, state: bytes | DeferredState) -> None:
        """See GroupLog."""
        self._state.check_usable()
        assert index <= self.last_index
        assert term == self.term_at(index)
        self._checkpoints.add(checkpoint_of(index, term, members, state), self._state.write_queue)
        self._state.token += 1

    def load_checkpoint(self) -> Checkpoint | None:
        """See GroupLog. A checkpoint that is not written yet counts too."""
        return self._checkpoints.newest()

    def checkpoint_reader(self) -> Callable[[], Checkpoint | None]:
        """See GroupLog."""
        return self._checkpoints.reader()

    @property
    def checkpoint_floor(self) -> int:
        """The index of the older of two durable checkpoints; 0 while there are not two."""
        return self._checkpoints.floor

    def manifest(self, first_live_seq: int) -> tuple[Manifest, Checkpoint] | None:
        """See GroupLog."""
        checkpoint = self._checkpoints.newest_durable()
        return None if checkpoint is None else (self.manifest_of(checkpoint, first_live_seq), checkpoint)

    def manifest_of(self, checkpoint: Checkpoint, first_live_seq: int) -> Manifest:
        """See GroupLog."""
        return self._copies.manifest_of(checkpoint, first_live_seq)

    def read_chunk(self, block: int, offset: int, size: int) -> bytes:
        """See GroupLog."""
        return self._copies.read_chunk(block, offset, size)

    def begin_install(self, manifest: Manifest, checkpoint: Checkpoint) -> Staging:
        """See GroupLog."""
        from jetraft.store.log.staging import FileStaging  # noqa: PLC0415  few members fetch a snapshot

        is_covered = partial(covers, self, manifest.index, manifest.term)
        return FileStaging.begin(self.place, manifest, checkpoint, self._open_installed, is_covered)

    # Upkeep.

    def trim(self, first_live_seq: int, index: int) -> int:
        """See GroupLog."""
        return self.upkeep.trim(first_live_seq, index)

    def erase_record(self, block: int, frame_offset: int, record_offset: int) -> None:
        """Overwrite the payload of a record, and headers that no replay reads, in its block (store/log/erasure.py).

        Visible immediately, durable when `durable_token` reaches the token. Raises StoreCorrupt, StoreFailed.
        """
        self.upkeep.erase_record(block, frame_offset, record_offset)

    def drop_copies(self) -> None:
        """Remove the copies of damaged bytes that are kept in the group's directory (store/ledger/quarantine.py).

        Durable when `durable_token` reaches the token.
        """
        self.upkeep.drop_copies()

    # Damage.

    @property
    def damaged_entries(self) -> index_ranges.Ranges:
        """See GroupLog."""
        return self._damage.damaged_entries

    @property
    def lost(self) -> index_ranges.Ranges:
        """See GroupLog."""
        return self._damage.lost

    @property
    def repair(self) -> "LogRepair":
        """The repair of this log, when an opening has found damage."""
        from jetraft.store.log.log_repair import LogRepair  # noqa: PLC0415  few starts meet damage

        return LogRepair(
            place=self.place,
            blocks=self._blocks,
            damage=self._damage,
            checkpoints=self._checkpoints,
            damaged_blocks=self.damaged_blocks,
        )

    def forget_end(self) -> None:
        """Reset the `end_index` of `reopen`: from now on the log itself determines its end."""
        self._options = attrs.evolve(self._options, end_index=0)

    # The log as a whole.

    @property
    def identity(self) -> Identity:
        """The node and the group that the log belongs to."""
        return self._state.place.identity

    @property
    def place(self) -> LogPlace:
        """The place of the log."""
        return self._state.place

    def reopen(self, *, end_index: int | None = None) -> "FileLog":
        """Open the log again after `close`. Blocking; raises as `open_log` does.

        With `end_index`, the log must have entries up to that one: missing ones are damaged. Later openings keep it.
        """
        options = self._options if end_index is None else attrs.evolve(self._options, end_index=end_index)
        return self._open_again(self.place, self._reader.cache, options)

    def reopen_cold(self) -> "FileLog":
        """The same after a failed write: reads from the device, not from the page cache."""
        return self._open_again(self.place, self._reader.cache, attrs.evolve(self._options, distrust_cache=True))

    def _open_installed(self, state: GroupState) -> "FileLog":
        return self._open_again(self.place, self._reader.cache, self._options, installed=state)

    def statistics(self) -> LogStatistics:
        """See GroupLog."""
        growing = self._state.growing
        return LogStatistics(
            first_index=self.first_index,
            last_index=self.last_index,
            durable_index=self.durable_index,
            blocks=len(self._blocks),
            bytes_used=sum(block.used for block in self._blocks),
            bytes_on_disk=sum(block.size if block is growing else block.used for block in self._blocks),
            batches=self.durability.batches,
            bytes_written=self.durability.bytes_written,
            checkpoint_index=self._checkpoints.newest_index,
            pieces_prepared=self.durability.pieces_prepared,
            failed=str(self.failed) if self.failed else None,
        )
