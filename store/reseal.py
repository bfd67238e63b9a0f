"""Seals the frames of a block that arrives from another member, before any of it touches the disk.

What arrives is open: frames, with marks between them, cut into pieces anywhere. What goes out are sealed frames for the
same block of this member's log. A frame that does not hold ends it: nothing that follows is written, and the
verification of the whole block then says so.
"""

from typing import Final

from jetraft.store._frame import make_skip, verify
from jetraft.store.cipher import GroupCipher
from jetraft.store.format import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, MARK_BYTES

_LENGTH_BYTES: Final = 4
_MARK_SENTINEL: Final = 0xFFFFFFFF
_SKIP_SENTINEL: Final = 0xFFFFFFFE
_INCARNATION_AT: Final = 8  # in a skip
_NEXT_INDEX_AT: Final = 24


class Resealer:
    """One block on its way in. Holds at most the beginning of one frame."""

    def __init__(self, cipher: GroupCipher, serial: int, offset: int) -> None:
        self._cipher = cipher
        self._serial = serial
        self._offset = offset  # where the next sealed frame goes
        self._waiting = bytearray()
        self._is_broken = False

    def feed(self, data: bytes) -> tuple[int, bytes]:
        """(offset, sealed frames that go there) for the next bytes that arrived."""
        start = self._offset
        sealed: list[bytes] = []
        if not self._is_broken:
            self._waiting += data
        at = 0
        while len(self._waiting) - at >= _LENGTH_BYTES:
            length = sentinel = int.from_bytes(self._waiting[at : at + _LENGTH_BYTES], "little")
            if sentinel in (_MARK_SENTINEL, _SKIP_SENTINEL):
                length = MARK_BYTES
            elif not FRAME_HEADER_BYTES <= length <= FRAME_BYTES_MAX:
                self._is_broken = True
                break
            if len(self._waiting) - at < length:
                break
            if length != MARK_BYTES:
                frame = bytes(self._waiting[at : at + length])
                if not verify(frame):
                    self._is_broken = True
                    break
                sealed.append(self._cipher.seal_frame(self._serial, self._offset, frame))
                self._offset += len(sealed[-1])
            elif sentinel == _SKIP_SENTINEL:
                sealed.append(self._moved(bytes(self._waiting[at : at + length])))
                self._offset += length
            at += length
        del self._waiting[: len(self._waiting) if self._is_broken else at]
        return start, b"".join(sealed)

    def _moved(self, skip: bytes) -> bytes:
        """A skip of the sender's block for its place in this one."""
        incarnation = int.from_bytes(skip[_INCARNATION_AT : _INCARNATION_AT + 8], "little")
        next_index = int.from_bytes(skip[_NEXT_INDEX_AT : _NEXT_INDEX_AT + 8], "little")
        return make_skip(incarnation=incarnation, offset=self._offset, next_index=next_index)
