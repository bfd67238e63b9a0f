"""What becomes of blocks that no longer grow: erased and disowned frames, trims, compaction, and what a scrub may read.

The third layer of a log in files (store/log.py). Nothing here is on the way of an append.
"""

from collections.abc import Sequence

import attrs

from jetraft.store import erasure, trimmed
from jetraft.store.backlog import LogPlace
from jetraft.store.block import Block
from jetraft.store.compaction import Compacted, Source, replacing
from jetraft.store.frame_reader import FrameReader
from jetraft.store.log_damage import Damage
from jetraft.store.log_durability import DurableLog
from jetraft.store.log_start import LogOptions, LogStart
from jetraft.store.recovery import MAX_SEQ, ranges_of
from jetraft.store.scrub import Target


class KeptUpLog(DurableLog):
    """A log whose blocks are rewritten and dropped."""

    __slots__ = ("_damage", "_dropped")

    def __init__(self, place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader) -> None:
        super().__init__(place, options, start, reader)
        self._damage = Damage(start.blocks, reader, place.identity.incarnation, ranges_of(start.damaged))
        if start.damaged:
            promised = 0 if start.hard_state_lost else start.hard_state.term
            self._damage.identify(start.identities, promised or None)
        self._dropped = start.dropped  # on purpose, and for good

    def erase_record(self, block: int, frame_offset: int, record_offset: int) -> None:
        """Overwrite the payload of a record, and headers that no replay reads, in its block (store/erasure.py).

        Readers see it at once; it is on disk when `durable_token` reaches the token. Raises StoreCorrupt, StoreFailed.
        """
        self._check_usable()
        found = self._blocks.numbered(block)
        frame = erasure.erased(self._reader.frame(found, frame_offset), record_offset)
        self._backlog.rewrites[block, frame_offset] = self._reader.rewriting(found, frame_offset, frame)
        self._newest = None
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
        self._newest = None
        if found.indexes is not None:
            item = attrs.evolve(item, kept=erasure.disowned(item.kept))
        self._backlog.rewrites[block, frame_offset] = item
        self._reader.files[block].revision += 1
        self._token += 1

    def trim(self, first_live_seq: int, index: int) -> int:
        """See GroupLog."""
        self._check_usable()
        oldest_index = self._checkpoints.oldest_index
        if not oldest_index:
            return 0
        # A block that was never written must not be missing before the record of the trim says so.
        blocks = self._blocks.droppable(first_live_seq, min(index, oldest_index, self.durable_index))
        if not blocks:
            return 0
        self._drop(blocks)
        return len(blocks)

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

    def _drop(self, blocks: list[Block]) -> None:
        """Drop blocks on purpose: the record of that is on disk before their files go."""
        gone = [(block.first_index, block.last_index) for block in blocks]
        self._blocks.drop(blocks)
        self._dropped = self._backlog.dropped = trimmed.merged([*self._dropped, *gone])
        for block in blocks:
            self._forget(block)
        self._token += 1

    @property
    def checkpoint_floor(self) -> int:
        """The index that both checkpoints kept are at or above, durably; 0 while there are not two."""
        return self._checkpoints.floor

    def compaction_source(self, number: int, index: int) -> Source | None:
        """A block that may be rewritten because all its entries lie at or below `index`; None when it may not be."""
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

        Either file is right after a crash: the directory may be fsynced later. Raises OSError when it was not done.
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

    def names_lost(self, error: OSError) -> None:
        """An fsync of the directory has failed: final, as one of a file. Which names a power cut leaves nobody knows.

        What is erased after an exchange would be erased in a file that may not come back.
        """
        if self.failed is None:
            self._fail(error)

    def _settled_block(self, number: int) -> Block | None:
        """A block that is on disk, whole and left alone; None for any other."""
        if self.failed is not None or self._closed or self._damage.lost or number not in self._reader.files:
            return None
        block = self._blocks.numbered(number)
        pending = [self._backlog, *(flight.backlog for flight in self._in_flight), *self._cleaning]
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
            if block.last_index <= self.durable_index and not self._damage.lost
        ]
