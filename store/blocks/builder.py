"""Builds the bytes of a block frame by frame, for blocks that are compacted, repaired or received.

A compacted block has a skip wherever entries are missing, and wherever the logical offset of the next frame is not
where the previous frame ends: a thin frame (store/frames/_thin.pyx) keeps its original length for readers, because
messages are located by their offsets in it. A compacted block always starts with a skip, which marks it as compacted.
"""

from array import array

from jetraft.store.frames._frame import make_mark, make_skip, parse_header
from jetraft.store.frames.cipher import GroupCipher
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, FRAME_PACKED, FRAME_THIN, FRAME_THIN_LENGTH_AT


class BlockBuilder:
    """The frames of one block, in order, after its head. Seals them if there is a cipher."""

    def __init__(  # noqa: PLR0913  (the fields of a block's head, and the form of its frames)
        self,
        *,
        incarnation: int,
        first_index: int,
        serial: int,
        cipher: GroupCipher | None,
        is_compacted: bool,
        tag: int = 0,
    ) -> None:
        self._incarnation = incarnation
        self._serial = serial
        self._tag = tag
        self._cipher = cipher
        self._is_compacted = is_compacted
        self.next_index = first_index
        self._logical_offset = BLOCK_HEAD_BYTES  # of the next frame
        self._scanned_offset = BLOCK_HEAD_BYTES  # the one that a scan derives for it if there is no skip
        self._parts: list[bytes] = []
        self.size = BLOCK_HEAD_BYTES
        self.places = array("I")
        self.indexes = array("Q")

    def add(self, index: int, frame: bytes) -> None:
        """Add an open frame, which may be thin or packed, at the end."""
        assert index >= self.next_index
        is_regular = index == self.next_index and self._logical_offset == self._scanned_offset
        if self._is_compacted and not (self.places and is_regular):
            skip = make_skip(
                incarnation=self._incarnation,
                place=self.size,
                logical_offset=self._logical_offset,
                next_index=index,
                tag=self._tag,
            )
            self._put(skip)
        stored = frame if self._cipher is None else self._cipher.seal_frame(self._serial, self.size, frame)
        self.places.append(self.size)
        self.indexes.append(index)
        self._put(stored)
        self._scanned_offset = self._logical_offset + len(stored)
        self._logical_offset += max(len(stored), expanded_length(frame))
        self.next_index = index + 1

    def finish(self) -> None:
        """Add the mark that ends the block."""
        mark = make_mark(incarnation=self._incarnation, offset=self.size, next_index=self.next_index, tag=self._tag)
        self._put(mark)

    def take(self) -> bytes:
        """The bytes that were added since the last call."""
        taken, self._parts = b"".join(self._parts), []
        return taken

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self.size += len(data)


def expanded_length(frame: bytes) -> int:
    """The length in bytes of an open frame once it is unpacked and expanded."""
    if parse_header(frame).flags & (FRAME_THIN | FRAME_PACKED):
        return int.from_bytes(frame[FRAME_THIN_LENGTH_AT : FRAME_THIN_LENGTH_AT + 4], "little")
    return len(frame)
