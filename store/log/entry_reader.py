"""Reads entries of a log by index or by place, around what is damaged."""

from jetraft.store.blocks.block import BlockList, entry_of
from jetraft.store.frames._frame import record_at
from jetraft.store.log.damage import Damage
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.state import LogState
from jetraft.store.port import Entry, FrameRef


class EntryReader:
    """The reads of GroupLog. It changes nothing."""

    __slots__ = ("_blocks", "_damage", "_reader", "_state")

    def __init__(self, state: LogState, blocks: BlockList, reader: FrameReader, damage: Damage) -> None:
        self._state = state
        self._blocks = blocks
        self._reader = reader
        self._damage = damage

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """See GroupLog."""
        newest = self._state.newest
        if newest is not None and newest.index == lo:
            return [newest]
        assert self._blocks.first_index <= lo <= hi <= self._blocks.last_index
        found: list[Entry] = []
        left = bytes_max
        while lo <= hi:
            block = self._blocks.find(lo)
            assert block is not None
            frame = self._reader.in_memory(block, block.offset_of(lo))
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
        found = self._blocks.locate(index)
        return None if found is None else FrameRef(*found)

    def frame_at(self, block: int, offset: int) -> bytes:
        """See GroupLog."""
        return self._reader.frame(self._blocks.numbered(block), offset)

    def read_record(self, block: int, frame_offset: int, record_offset: int) -> tuple[int, int, bytes, bytes, bytes]:
        """See GroupLog."""
        return record_at(self._reader.frame(self._blocks.numbered(block), frame_offset), record_offset)

    def is_compacted(self, index: int) -> bool:
        """See GroupLog."""
        block = self._blocks.find(index)
        return block is not None and block.indexes is not None
