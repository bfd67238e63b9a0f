"""Puts the bytes of a block together, frame by frame: for blocks that are compacted, mended, or arrive from elsewhere.

In a block that was compacted a skip stands wherever entries are missing, and wherever the next frame must go by another
offset than its place says: a thin frame (store/_thin.pyx) is read as long as it was once, and messages are known by
their offsets in that. There is always one at the start: it tells that the block was compacted.
"""

from array import array

from jetraft.store._frame import make_mark, make_skip, parse_header
from jetraft.store.cipher import GroupCipher
from jetraft.store.format import BLOCK_HEAD_BYTES, FRAME_PACKED, FRAME_THIN, FRAME_THIN_LENGTH_AT


class BlockBuilder:
    """Frames of one block, in order, behind its head. Seals them when there is a cipher."""

    def __init__(  # noqa: PLR0913  (what a block's head says, and what its frames look like)
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
        self._known_as = self._walked_to = BLOCK_HEAD_BYTES  # offsets of the next frame: chosen, and without a skip
        self._parts: list[bytes] = []
        self.size = BLOCK_HEAD_BYTES
        self.places = array("I")
        self.indexes = array("Q")

    def add(self, index: int, frame: bytes) -> None:
        """Put an open frame, which may be thin or packed, at the end."""
        assert index >= self.next_index
        if self._is_compacted and (not self.places or index != self.next_index or self._known_as != self._walked_to):
            skip = make_skip(
                incarnation=self._incarnation,
                place=self.size,
                known_as=self._known_as,
                next_index=index,
                tag=self._tag,
            )
            self._put(skip)
        kept = frame if self._cipher is None else self._cipher.seal_frame(self._serial, self.size, frame)
        self.places.append(self.size)
        self.indexes.append(index)
        self._put(kept)
        self._walked_to = self._known_as + len(kept)
        self._known_as += max(len(kept), whole_bytes(frame))
        self.next_index = index + 1

    def finish(self) -> None:
        """Put a mark at the end."""
        mark = make_mark(incarnation=self._incarnation, offset=self.size, next_index=self.next_index, tag=self._tag)
        self._put(mark)

    def take(self) -> bytes:
        """What was put since the last call."""
        taken, self._parts = b"".join(self._parts), []
        return taken

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self.size += len(data)


def whole_bytes(frame: bytes) -> int:
    """How long readers see an open frame."""
    if parse_header(frame).flags & (FRAME_THIN | FRAME_PACKED):
        return int.from_bytes(frame[FRAME_THIN_LENGTH_AT : FRAME_THIN_LENGTH_AT + 4], "little")
    return len(frame)
