"""Maintains the blocks that no longer grow: erases records, drops and compacts blocks, lists what a scrub may read.

Nothing here is on the path of an append.
"""

from collections.abc import Sequence

import attrs

from jetraft.store.blocks.block import Block, BlockList
from jetraft.store.frames.format import checkpoint_name
from jetraft.store.ledger import ledger_records
from jetraft.store.log import erasure
from jetraft.store.log.compaction import Compacted, Source, replacing
from jetraft.store.log.damage import Damage
from jetraft.store.log.durability import Durability
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.recovery import MAX_SEQ
from jetraft.store.log.retained_checkpoints import RetainedCheckpoints
from jetraft.store.log.scrub import Target
from jetraft.store.log.state import LogState
from jetraft.store.log.tail import LogTail
from jetraft.store.model.files import index_ranges


class BlockUpkeep:
    """Rewrites and drops blocks."""

    __slots__ = (
        "_blocks",
        "_checkpoints",
        "_damage",
        "_dropped",
        "_durability",
        "_erasures",
        "_has_older_note",
        "_reader",
        "_state",
        "_tail",
    )

    def __init__(  # noqa: PLR0913  (the parts of the log that an upkeep must not disturb)
        self,
        state: LogState,
        blocks: BlockList,
        reader: FrameReader,
        *,
        tail: LogTail,
        durability: Durability,
        checkpoints: RetainedCheckpoints,
        damage: Damage,
        dropped: index_ranges.Ranges,
    ) -> None:
        self._state = state
        self._blocks = blocks
        self._reader = reader
        self._tail = tail
        self._durability = durability
        self._checkpoints = checkpoints
        self._damage = damage
        self._dropped = dropped  # every index that was ever dropped on purpose; only grows
        # Block -> how often a message was erased in it whose subject is still there. Most logs have none.
        self._erasures: dict[int, int] | None = self._noted_erasures()
        # One value of the ledger says it of all blocks, as those before 0.2 did.
        self._has_older_note = ledger_records.erased_name(state.place.key) in state.place.ledger.values

    @property
    def erased_in(self) -> frozenset[int]:
        """The blocks that still have the subject of an erased message."""
        return frozenset(self._erasures or ())

    def erasures_in(self, block: int) -> int:
        """How often a message was erased in a block since the last rewrite that was planned after all of them."""
        return 0 if self._erasures is None else self._erasures.get(block, 0)

    def forget_erasures(self, block: int, planned: int) -> None:
        """A block was rewritten by a plan that knew of `planned` erasures; one that came later still has to go."""
        if self._erasures is not None and self._erasures.get(block) == planned:
            self._is_rid_of(block)

    def erase_record(self, block: int, frame_offset: int, record_offset: int) -> None:
        """See RecordEraser (store/stream/stream_store.py) and store/log/erasure.py."""
        self._state.check_usable()
        frame = erasure.erased(self._reader.frame(self._blocks.numbered(block), frame_offset), record_offset)
        self._rewrite(block, frame_offset, frame, is_invalidated=False)
        if self._erasures is None:
            self._erasures = {}
        count = self._erasures[block] = self._erasures.get(block, 0) + 1
        if count == 1:
            self._note_erasures(block, is_so=True)

    def _noted_erasures(self) -> dict[int, int] | None:
        """What an earlier process has noted of these blocks."""
        serials = self._state.place.ledger.erased_in(self._state.place.key)
        found = {number: 1 for number, file in self._reader.files.items() if file.head.serial in serials}
        return found or None

    def _note_erasures(self, block: int, *, is_so: bool) -> None:
        """Have the ledger know the block, with its next batch: the restart in between applies the erasure again.

        A checkpoint that stands for the erasure is recorded after that, so no start is without both.
        """
        ledger, key, files = self._state.place.ledger, self._state.place.key, self._reader.files
        if self._has_older_note:  # its blocks get a note each before it goes
            self._has_older_note = False
            others = [files[other] for other in self.erased_in - {block} if other in files]
            for file in others:
                ledger.note(ledger_records.erased(key, file.head.serial))
            ledger.note(ledger_records.value(ledger_records.erased_name(key), None))
        if block in files:
            ledger.note(ledger_records.erased(key, files[block].head.serial, is_so=is_so))

    def drop_copies(self) -> None:
        """See FileLog. A log that has failed drops them when the entry is applied again."""
        if self._state.failed is None:
            self._state.write_queue.drops_copies = True
            self._state.token += 1

    def invalidate(self, block: int, frame_offset: int) -> None:
        """Damage a frame that differs from that of most members, so that the next opening repairs it (decision 27).

        Durable when `durable_token` reaches the token. Raises StoreCorrupt, StoreFailed.
        """
        self._state.check_usable()
        frame = erasure.invalidated(self._reader.frame(self._blocks.numbered(block), frame_offset))
        self._rewrite(block, frame_offset, frame, is_invalidated=True)

    def _rewrite(self, number: int, offset: int, frame: bytes, *, is_invalidated: bool) -> None:
        block = self._blocks.numbered(number)
        item = self._reader.rewriting(block, offset, frame)
        if is_invalidated and block.indexes is not None:
            item = attrs.evolve(item, stored=erasure.invalidated(item.stored))
        self._state.write_queue.rewrites[number, offset] = item
        self._state.newest = None
        self._reader.files[number].revision += 1
        self._state.token += 1

    def trim(self, first_live_seq: int, index: int) -> int:
        """See GroupLog."""
        self._state.check_usable()
        oldest_index = self._checkpoints.oldest_index
        if not oldest_index:
            return 0
        # A block that was never written must not be missing before the record of the trim says so.
        blocks = self._blocks.droppable(first_live_seq, min(index, oldest_index, self._state.durable_index))
        self._drop(blocks)
        return len(blocks)

    def has_droppable(self, first_live_seq: int) -> bool:
        """Whether a trim would drop blocks, once the checkpoints allow it."""
        return bool(self._blocks.droppable(first_live_seq, self._state.durable_index))

    def drop_dead(self, numbers: Sequence[int], index: int) -> int:
        """Drop blocks without live messages, all of whose entries are at or below `index`; see `trim`."""
        self._state.check_usable()
        found = [self._block_at_rest(number) for number in numbers]
        limit = min(index, self._state.durable_index)
        blocks = [block for block in found if block is not None and block.last_index <= limit]
        self._drop(blocks)
        return len(blocks)

    def _drop(self, blocks: list[Block]) -> None:
        """Drop blocks on purpose: the record of that is on disk before their files go."""
        if not blocks:
            return
        gone = [(block.first_index, block.last_index) for block in blocks]
        self._blocks.drop(blocks)
        self._dropped = self._state.write_queue.dropped = index_ranges.merged([*self._dropped, *gone])
        for block in blocks:
            self._damage.is_gone_from(block)
            self._is_rid_of(block.number)
            self._tail.remove(block)
        self._state.token += 1

    def compaction_source(self, number: int, index: int) -> Source | None:
        """A block to compact, if all its entries are at or below `index` and it may be rewritten; otherwise None."""
        block = self._block_at_rest(number)
        if block is None or not block.offsets or block.last_index > min(index, self._state.durable_index):
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
            replaced=self._reader.replaced(block) if self._damage.is_in(block) else {},
        )

    def exchange(self, compacted: Compacted) -> bool:
        """Replace the file of a block by its compacted one; False when the block was changed or dropped meanwhile.

        Both files are valid after a crash, so the directory may be fsynced later. Raises OSError on failure.
        """
        source = compacted.source
        block = self._block_at_rest(source.number)
        if block is None or self._reader.files[source.number].revision != source.revision:
            return False
        disk = self._state.place.disk
        disk.perform(replacing(disk, source.path))
        self._reader.reload(source.number, compacted.used)
        block.sealed_last_index = block.last_index
        block.offsets, block.stored, block.indexes = compacted.offsets, compacted.places, compacted.indexes
        block.used = compacted.used
        self._damage.is_gone_from(block)
        self._blocks.note_holes()
        return True

    def _is_rid_of(self, number: int) -> None:
        """A block has nothing of what was erased any more."""
        if self._erasures is not None and self._erasures.pop(number, None) is not None:
            self._erasures = self._erasures or None
            self._note_erasures(number, is_so=False)

    def directory_sync_failed(self, error: OSError) -> None:
        """Fail the log because an fsync of its directory failed; final, like a failed fsync of a file.

        It is unknown which of two exchanged files would exist after a power failure, and a later erasure would be
        written to only one of them.
        """
        if self._state.failed is None:
            self._durability.fail(error)

    def _block_at_rest(self, number: int) -> Block | None:
        """A block that is whole on disk and that no unfinished change touches; None for any other."""
        if self._state.failed is not None or self._state.is_closed:
            return None
        if number not in self._reader.files:
            return None
        block = self._blocks.numbered(number)
        if not self._damage.can_be_replaced(block):
            return None
        is_touched = any(
            any(retired is block for retired, _ in queue.retired)
            or any(segment.block is block for segment in queue.segments)
            or any(place[0] == number for place in queue.rewrites)
            for queue in self._durability.unfinished()
        )
        is_at_rest = not is_touched and block is not self._blocks.newest and block.last_seq != MAX_SEQ
        return block if is_at_rest else None

    def scrub_targets(self) -> list[Target]:
        """The targets of a scrub: blocks that are not being overwritten and have no known damage, and checkpoints.

        Of the block that grows, the entries that are durable.
        """
        rewriting = {number for queue in self._durability.unwritten() for number, _ in queue.rewrites}
        place, durable_index = self._state.place, self._state.durable_index
        checkpoints = [
            Target(
                path=place.log / checkpoint_name(index),
                identity=place.identity,
                first_index=index,
                last_index=index,
                size=0,
                is_checkpoint=True,
            )
            for index in self._checkpoints.durable
        ]
        return [
            *(
                Target(
                    path=self._reader.files[block.number].path,
                    identity=place.identity,
                    first_index=block.first_index,
                    last_index=min(block.last_index, durable_index),
                    size=block.used,
                )
                for block in self._blocks
                if block.last_seq != MAX_SEQ and block.number not in rewriting and block.first_index <= durable_index
                if (block is self._state.growing or block.last_index <= durable_index) and not self._damage.is_in(block)
                if self._reader.files[block.number].written or block is not self._state.growing
            ),
            *checkpoints,
        ]
