"""The ordered log of one group in files: append, cut, trim, term and vote, checkpoints, and reads by index or by place.

Model: appends are placed in blocks and can be read from memory at once (store/log_appending.py); `submit` turns
everything that waits into one batch for the writer thread (store/log_durability.py); blocks that no longer grow are
erased, compacted and dropped (store/log_upkeep.py). Here are the reads, around what is damaged (store/log_damage.py).
The place of a frame never changes, so message reads need only (block, offset).

Opening is in store/log_open.py, recovery in store/recovery.py, the layout in store/format.py. Source of the idea:
design, "one log, written once".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import attrs

from jetraft.store import trimmed
from jetraft.store._frame import record_at
from jetraft.store.backlog import LogPlace
from jetraft.store.block import Block, entry_of
from jetraft.store.format import BLOCK_HEAD_BYTES
from jetraft.store.frame_reader import FrameReader
from jetraft.store.ledger_records import GroupState
from jetraft.store.log_start import LogOptions, LogStart
from jetraft.store.log_upkeep import KeptUpLog
from jetraft.store.port import Checkpoint, Entry, FrameRef, LogStatistics
from jetraft.store.salvage import salvaged
from jetraft.store.snapshot import Manifest, Staging, covers, make_manifest
from jetraft.store.staging import FileStaging


class FileLog(KeptUpLog):
    """Implements GroupLog; made by `open_log`."""

    __slots__ = (
        "_open_again",
        "damaged",
        "hard_state_lost",
        "recovery_report",
    )

    def __init__(self, place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader) -> None:
        super().__init__(place, options, start, reader)
        self.hard_state_lost = start.hard_state_lost
        self.recovery_report = start.report
        self._open_again = start.open_again
        self.damaged = start.damaged
        if start.has_files:
            self._backlog.new_directories += start.new_directories
        else:
            self._backlog.empty_directories += start.new_directories
        self._backlog.facts += start.facts
        self._backlog.unlink += start.superfluous
        if start.facts:
            self._token = self.hard_state_token = 1
        if start.continues:
            self._growing = self._blocks.newest
            reader.files[self._growing.number].is_growing = True
        if start.torn and not start.damaged:  # the term that the new block begins with may not be known yet
            self._roll(self.last_index + 1)
            self._token += 1

    def reopen(self) -> "FileLog":
        """After `close`: what is on disk then. Blocking; raises as `open_log` does."""
        return self._open_again(self._place, self._reader.cache, self._options)

    def reopen_cold(self) -> "FileLog":
        """The same after a failed write: what the device has, not what the cache says."""
        return self._open_again(self._place, self._reader.cache, attrs.evolve(self._options, distrust_cache=True))

    @property
    def faulty(self) -> trimmed.Ranges:
        """See GroupLog."""
        return self._damage.faulty

    @property
    def lost(self) -> trimmed.Ranges:
        """See GroupLog."""
        return self._damage.lost

    @property
    def sums_records(self) -> bool:
        """See GroupLog. What is encrypted can be opened only as a whole."""
        return self._place.cipher is None

    @property
    def returned(self) -> Mapping[int, bytes]:
        """Of the entries given up, the true frames that have come back."""
        return self._damage.returned

    def give_up(self, ranges: trimmed.Ranges, frames: Mapping[int, bytes] = MappingProxyType({})) -> None:
        """Go on without these faulty entries, except for those whose verified frames are given: see Damage."""
        self._damage.give_up(ranges, self.load_checkpoint(), frames)

    def substitute(self, index: int) -> bytes:
        """What stands for a faulty entry that is given up: see Damage."""
        return self._damage.substitute(index)

    def term_bounds(self, index: int) -> tuple[int, int] | None:
        """See GroupLog."""
        return self._blocks.terms.bounds(index)

    def know(self, index: int, term: int) -> None:
        """The term of a faulty entry has become known. Raises ValueError when it cannot have that one."""
        self._blocks.terms.correct(index, term)

    def note_lost(self, indexes: Sequence[int]) -> None:
        """These entries, mended by now, stand for others that no member has."""
        self._damage.lost = trimmed.merged([*self._damage.lost, *((index, index) for index in indexes)])

    def salvage(self) -> list[int]:
        """Have `substitute` keep what is sound of damaged frames: of these entries.

        Only for who has nobody to get them back from: others would have something else in the same place. Blocking.
        Raises OSError.
        """
        self._damage.salvaged = salvaged(self._place, self.damaged)
        return sorted(self._damage.salvaged)

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """See GroupLog."""
        newest = self._newest
        if newest is not None and newest.index == lo:
            return [newest]
        assert self.first_index <= lo <= hi <= self.last_index
        found: list[Entry] = []
        left = bytes_max
        while lo <= hi:
            block = self._blocks.find(lo)
            assert block is not None
            frame = self._reader.held(block, block.offset_of(lo))
            if frame:
                some = [entry_of(frame)]
            else:
                some = self._reader.run(block, lo, self._damage.sound_to(lo, min(hi, block.last_index)), left)
            for entry in some:
                left -= len(entry.frame)
                if found and left < 0:
                    return found
                found.append(entry)
            lo += len(some)
        return found

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
        return self._damage.walk(lo, hi)

    def is_compacted(self, index: int) -> bool:
        """See GroupLog."""
        block = self._blocks.find(index)
        return block is not None and block.indexes is not None

    def save_checkpoint(self, index: int, term: int, members: bytes, state: bytes) -> None:
        """See GroupLog."""
        self._check_usable()
        assert index <= self.last_index
        assert term == self.term_at(index)
        checkpoint = Checkpoint(index=index, term=term, members=members, state=state)
        self._checkpoints.add(checkpoint, self._backlog)
        self._token += 1

    def load_checkpoint(self) -> Checkpoint | None:
        """See GroupLog. What was not written yet counts too."""
        return self._checkpoints.newest()

    def forget_checkpoints(self) -> bool:
        """Go on without the checkpoints, as none can be read: all entries are there, to be applied from the first on.

        False when entries that they stand for were dropped or thinned out: then nothing is changed. The ledger names
        the damaged ones until the next checkpoint is durable.
        """
        if self.first_index != 1:
            return False
        self._checkpoints.forget()
        return True

    def manifest(self, first_live_seq: int) -> tuple[Manifest, Checkpoint] | None:
        """See GroupLog."""
        checkpoint = self._checkpoints.newest_durable()
        return None if checkpoint is None else (self.manifest_of(checkpoint, first_live_seq), checkpoint)

    def checkpoint_reader(self) -> Callable[[], Checkpoint | None]:
        """See GroupLog."""
        return self._checkpoints.reader()

    def manifest_of(self, checkpoint: Checkpoint, first_live_seq: int) -> Manifest:
        """See GroupLog."""
        blocks = list(self._blocks)
        return make_manifest(blocks, checkpoint, first_live_seq=first_live_seq, body_bytes=self._body_bytes)

    def _body_bytes(self, block: Block, last_index: int) -> int:
        image = self._damage.image(block)
        return block.span_end(last_index) - BLOCK_HEAD_BYTES if image is None else image.body_bytes(last_index)

    def read_chunk(self, block: int, offset: int, size: int) -> bytes:
        """See GroupLog."""
        found = self._blocks.numbered(block)
        image = self._damage.image(found)
        if image is not None:
            return image.data[offset : offset + size]
        return self._reader.piece(found, BLOCK_HEAD_BYTES + offset, size)

    def begin_install(self, manifest: Manifest, checkpoint: Checkpoint) -> Staging:
        """See GroupLog."""
        is_covered = partial(covers, self, manifest.index, manifest.term)
        return FileStaging(self._place, manifest, checkpoint, self._open_installed, is_covered)

    def _open_installed(self, state: GroupState) -> "FileLog":
        return self._open_again(self._place, self._reader.cache, self._options, installed=state)

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
            checkpoint_index=self._checkpoints.newest_index,
            pieces_prepared=self._preparation.pieces_done,
            failed=str(self.failed) if self.failed else None,
        )
