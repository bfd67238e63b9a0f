"""Encrypts the frames of a block that is received from another member, before they are written to disk.

The input is open frames, with marks and skips between them, in chunks that may end anywhere. The output is sealed
frames for the same block of this member's log. The output ends at the first invalid frame; the verification of the
whole block then fails.
"""

from typing import Final

from jetraft.store.blocks.builder import BlockBuilder
from jetraft.store.frames._frame import parse_header, verify
from jetraft.store.frames.cipher import GroupCipher
from jetraft.store.frames.format import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, MARK_BYTES, BlockHead

_LENGTH_BYTES: Final = 4
_MARK_SENTINEL: Final = 0xFFFFFFFF
_SKIP_SENTINEL: Final = 0xFFFFFFFE


class Resealer:
    """The state of one block that is being received. Buffers at most one incomplete frame."""

    def __init__(self, cipher: GroupCipher, head: BlockHead, incarnation: int) -> None:
        self._cipher = cipher
        self._head = head
        self._incarnation = incarnation
        self._builder: BlockBuilder | None = None
        self._waiting = bytearray()
        self._is_broken = False

    def feed(self, data: bytes, start: int) -> tuple[int, bytes]:
        """(offset, sealed frames to write there) for the next chunk; `start` is the offset of the first chunk."""
        start = start if self._builder is None else self._builder.size
        if not self._is_broken:
            self._waiting += data
        at = 0
        while not self._is_broken and len(self._waiting) - at >= _LENGTH_BYTES:
            length = sentinel = int.from_bytes(self._waiting[at : at + _LENGTH_BYTES], "little")
            if sentinel in (_MARK_SENTINEL, _SKIP_SENTINEL):
                length = MARK_BYTES
            elif not FRAME_HEADER_BYTES <= length <= FRAME_BYTES_MAX:
                self._is_broken = True
            if self._is_broken or len(self._waiting) - at < length:
                break
            if self._builder is None:
                self._builder = self._begin(is_compacted=sentinel == _SKIP_SENTINEL)
            if length != MARK_BYTES:
                self._add(self._builder, bytes(self._waiting[at : at + length]))
            at += length
        del self._waiting[: len(self._waiting) if self._is_broken else at]
        return start, b"" if self._builder is None else self._builder.take()

    def _begin(self, *, is_compacted: bool) -> BlockBuilder:
        return BlockBuilder(
            incarnation=self._incarnation,
            first_index=self._head.first_index,
            serial=self._head.serial,
            cipher=self._cipher,
            is_compacted=is_compacted,
        )

    def _add(self, builder: BlockBuilder, frame: bytes) -> None:
        if verify(frame) and parse_header(frame).log_index >= builder.next_index:
            builder.add(parse_header(frame).log_index, frame)
        else:
            self._is_broken = True
