"""Seals the frames of a block that arrives from another member, before any of it touches the disk.

What arrives is open: frames, with marks between them, cut into pieces anywhere. What goes out are sealed frames for the
same block of this member's log. A frame that does not hold ends it: nothing that follows is written, and the
verification of the whole block then says so.
"""

from typing import Final

from jetraft.store._frame import verify
from jetraft.store.cipher import GroupCipher
from jetraft.store.format import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, MARK_BYTES

_LENGTH_BYTES: Final = 4
_MARK_SENTINEL: Final = 0xFFFFFFFF


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
            length = int.from_bytes(self._waiting[at : at + _LENGTH_BYTES], "little")
            if length == _MARK_SENTINEL:
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
            at += length
        del self._waiting[: len(self._waiting) if self._is_broken else at]
        return start, b"".join(sealed)
