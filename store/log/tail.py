"""The end of a log: the block that grows, and the frames that wait for the writer.

Everything here happens in memory. The place of a frame is decided when it is appended and never changes; the write
queue has what no file has yet.

Invariants: a byte of a block is written once. After a cut or a torn tail the log continues in a new block, whose head
voids what older blocks have from its first index on.
"""

import os
from typing import Final

from jetraft.store.blocks.block import Block, BlockList
from jetraft.store.disk.space import affordable_block_bytes
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, MARK_BYTES, BlockHead, parity_name
from jetraft.store.log._growth import Appending
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.start import BLOCK_GROWTH, LogOptions
from jetraft.store.log.state import LogState
from jetraft.store.log.write_queue import BlockFile

TAG_BYTES: Final = 4  # of what clients cannot know of a block: see store/frames/format.py


class LogTail(Appending):
    """Appends and cuts, and starts blocks."""

    __slots__ = ("_block_bytes", "_options", "_serial")

    def __init__(
        self, state: LogState, blocks: BlockList, reader: FrameReader, options: LogOptions, *, serial: int
    ) -> None:
        cipher = state.place.cipher
        super().__init__(state, blocks, reader, None if cipher is None else cipher.seal_frame)
        self._options = options
        self._serial = serial  # of the next block
        self._block_bytes = options.block_bytes_first  # the size of the next block if there is room for it

    def cut_from(self, index: int) -> None:
        """See GroupLog."""
        self._state.check_usable()
        self._state.newest = None
        self._drop_unwritten(index)
        for block in self._blocks.cut_from(index):
            self.remove(block)
        if len(self._blocks):
            self._reader.shorten(self._blocks.newest)
        self.roll(index)
        self._state.token += 1

    def continue_newest(self) -> None:
        """Let the newest block of an earlier process grow on."""
        self._state.growing = self._blocks.newest
        self._reader.files[self._blocks.newest.number].is_growing = True

    def roll_early(self) -> None:
        """Let the next entry start a small block, although the one that grows is not full."""
        self._state.check_usable()
        self._block_bytes = self._options.block_bytes_first
        self.roll(self._blocks.last_index + 1)
        self._state.token += 1

    def roll(self, index: int, frame_bytes: int = 0) -> Block:
        """Retire the newest block and start another with room for a frame of so many bytes; its first entry is `index`.

        The caller advances the token.
        """
        state = self._state
        old = self._blocks.newest if len(self._blocks) else None
        if old is not None and not old.offsets:
            self._blocks.forget_newest()
            self.remove(old)
        elif old is not None and old.number in self._reader.files:
            self._reader.files[old.number].is_growing = False
            state.write_queue.retired.append((old, self._reader.files[old.number]))
        size = max(self._next_block_bytes(), BLOCK_HEAD_BYTES + frame_bytes + MARK_BYTES)
        # Random, so that no payload can contain a mark of this block.
        tag = int.from_bytes(os.urandom(TAG_BYTES), "little")
        head = BlockHead(serial=self._serial, first_index=index, boundary_term=self._blocks.terms.last_term, tag=tag)
        # No other block gets it, whatever becomes of this one: file name and encryption key follow from it.
        self._serial += 1
        block = self._blocks.open_block(index, size=size, used=BLOCK_HEAD_BYTES)
        self._reader.files[block.number] = BlockFile(place=state.place, head=head, sealed=self._seal is not None)
        state.growing = block
        self._begin_segment(block, create=True)
        return block

    def remove(self, block: Block) -> None:
        """Remove a block that the list no longer has: its waiting frames are not written, its file is deleted.

        The file goes after the batch that takes the write queue is durable. The caller advances the token.
        """
        queue = self._state.write_queue
        segments = [segment for segment in queue.segments if segment.block is block]
        queue.segments = [segment for segment in queue.segments if segment.block is not block]
        queue.retired = [item for item in queue.retired if item[0] is not block]
        for key in [key for key in queue.rewrites if key[0] == block.number]:
            del queue.rewrites[key]
        file = self._reader.forget(block.number)
        # A block whose creation still waits has no file.
        if not any(segment.create for segment in segments):
            queue.unlink.append(file.path)
            if block.indexes is not None:
                queue.unlink.append(file.path.with_name(parity_name(file.path.name)))
        if file.fd is not None:
            queue.close.append(file.fd)
            file.fd = None
        if self._state.growing is block:
            self._state.growing = None

    def _next_block_bytes(self) -> int:
        """The size of the next block. The one after it grows if this one got the size that it should have."""
        wanted, available_bytes = self._block_bytes, self._options.available_bytes
        size = wanted if available_bytes is None else affordable_block_bytes(wanted, available_bytes())
        if size == wanted:
            self._block_bytes = min(wanted * BLOCK_GROWTH, self._options.block_bytes_max)
        return size

    def _drop_unwritten(self, index: int) -> None:
        """Remove frames from `index` on from the write queue; the next frames may take their places."""
        for segment in self._state.write_queue.segments:
            offset = segment.offset
            for number, frame in enumerate(segment.frames):
                if segment.first_index + number >= index:
                    self._reader.release(segment.block, offset)
                offset += len(frame)
            if segment.first_index + len(segment.frames) > index:
                segment.cut_from(index)
                segment.block.used = segment.end
