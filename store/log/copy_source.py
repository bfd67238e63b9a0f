"""The parts of a log for a member that cannot be brought up to date entry by entry (store/log/snapshot.py)."""

from jetraft.store.blocks.block import Block, BlockList
from jetraft.store.frames.format import BLOCK_HEAD_BYTES
from jetraft.store.log.damage import Damage
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.snapshot import make_manifest
from jetraft.store.model.files.manifest import Manifest
from jetraft.store.port import Checkpoint


class CopySource:
    """Lists the parts of blocks that a copy needs, and reads them. It changes nothing.

    A block with a lost entry is sent as `Damage.image` has it, any other one as its file has it.
    """

    __slots__ = ("_blocks", "_damage", "_reader")

    def __init__(self, blocks: BlockList, reader: FrameReader, damage: Damage) -> None:
        self._blocks = blocks
        self._reader = reader
        self._damage = damage

    def manifest_of(self, checkpoint: Checkpoint, first_live_seq: int) -> Manifest:
        """See GroupLog."""
        return make_manifest(list(self._blocks), checkpoint, first_live_seq=first_live_seq, body_bytes=self._body_bytes)

    def read_chunk(self, block: int, offset: int, size: int) -> bytes:
        """See GroupLog."""
        found = self._blocks.numbered(block)
        image = self._damage.image(found)
        if image is not None:
            return image.data[offset : offset + size]
        return self._reader.piece(found, BLOCK_HEAD_BYTES + offset, size)

    def _body_bytes(self, block: Block, last_index: int) -> int:
        image = self._damage.image(block)
        return block.span_end(last_index) - BLOCK_HEAD_BYTES if image is None else image.body_bytes(last_index)
