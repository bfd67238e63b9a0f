"""Reads frames of one log from wherever they are: waiting to be written, in the cache, or in a block's file.

A frame that comes from a file is verified before anyone sees it: its checksum, and that it is the entry which the
block's table has at that place.
"""

from collections import OrderedDict
from typing import Final

from jetraft.store._frame import make_mark, parse_header, verify
from jetraft.store.backlog import BlockFile
from jetraft.store.block import Block, entry_of
from jetraft.store.block_cache import BlockCache
from jetraft.store.cipher import SEAL_BYTES, GroupCipher
from jetraft.store.format import FRAME_FLAGS_AT, FRAME_HEADER_BYTES, FRAME_SEALED
from jetraft.store.io import Disk
from jetraft.store.port import Entry, StoreCorrupt

FILES_OPEN_MAX: Final = 8  # per log, for reads of blocks that no longer grow


class FrameReader:
    """The frames of one log by block and offset."""

    def __init__(self, disk: Disk, cache: BlockCache, incarnation: int, cipher: GroupCipher | None = None) -> None:
        self._disk = disk
        self._cache = cache
        self._log = cache.register_log()
        self._incarnation = incarnation
        self._cipher = cipher
        self._unwritten: dict[tuple[int, int], bytes] = {}  # (block, offset) -> frame that no file has yet
        self._rewriting: dict[tuple[int, int], bytes] = {}  # frames that are being overwritten by these
        self._open: OrderedDict[int, int] = OrderedDict()  # block -> descriptor, least recently used first
        self.files: dict[int, BlockFile] = {}  # by block number

    def hold(self, block: Block, offset: int, frame: bytes) -> None:
        """Keep a frame that is about to be written."""
        self._unwritten[block.number, offset] = frame
        self._cache.put((self._log, block.number, offset), frame)

    def release(self, block: Block, offset: int) -> None:
        """Let go of a frame that is in its file now, or was cut."""
        self._unwritten.pop((block.number, offset), None)

    def rewrite(self, block: Block, offset: int, frame: bytes) -> None:
        """Read this frame from now on, until `rewritten` says that it is in the file."""
        key = block.number, offset
        self._rewriting[key] = frame
        if key in self._unwritten:
            self._unwritten[key] = frame
        self._cache.replace((self._log, *key), frame)

    def rewritten(self, key: tuple[int, int], frame: bytes) -> None:
        """The file has this frame at a place (block, offset)."""
        if self._rewriting.get(key) is frame:
            del self._rewriting[key]

    def held(self, block: Block, offset: int) -> bytes | None:
        """The frame, if it is in memory."""
        key = block.number, offset
        frame = self._rewriting.get(key) or self._unwritten.get(key)
        return self._cache.get((self._log, block.number, offset)) if frame is None else frame

    def frame(self, block: Block, offset: int) -> bytes:
        """The frame at a place. Raises KeyError when none starts there, StoreCorrupt when it is damaged."""
        frame = self.held(block, offset)
        if frame is not None:
            return frame
        index = block.index_at(offset)
        if index is None:
            raise KeyError((block.number, offset))
        frame = self.run(block, index, index, 0)[0].frame
        self._cache.put((self._log, block.number, offset), frame)
        return frame

    def run(self, block: Block, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Entries from `lo` to at most `hi` of one block, from its file by one read of about `bytes_max`; at least one.

        Frames that are not written yet come from memory.
        """
        start = block.offset_of(lo)
        waiting = self._rewriting.get((block.number, start)) or self._unwritten.get((block.number, start))
        if waiting is not None:
            return [entry_of(waiting)]
        last, end = self._reach(block, lo, hi, start + bytes_max)
        data = self._disk.read(self._descriptor(block.number), end - start, start)
        return [self._checked(block, data, start, index) for index in range(lo, last + 1)]

    def piece(self, block: Block, offset: int, size: int) -> bytes:
        """Bytes of a block for another member: as the file has them, but open, with a mark where a frame's seal was."""
        data = self._disk.read(self._descriptor(block.number), size, offset)
        if self._cipher is None or not self._is_sealed(block):
            return data
        shown = bytearray(data)
        end = offset + len(data)
        for index in range(block.index_before(offset), block.last_index + 1):
            at = block.offset_of(index)
            if at >= end:
                break
            frame = self.frame(block, at)
            mark = make_mark(incarnation=self._incarnation, offset=at + len(frame), next_index=index + 1)
            low, high = max(at, offset), min(at + len(frame) + SEAL_BYTES, end)
            if low < high:
                shown[low - offset : high - offset] = (frame + mark)[low - at : high - at]
        return bytes(shown)

    def _is_sealed(self, block: Block) -> bool:
        """Whether the frames of a block are encrypted: all of them are, or none."""
        file = self.files[block.number]
        if file.sealed is None:
            header = self._disk.read(self._descriptor(block.number), FRAME_HEADER_BYTES, block.offsets[0])
            file.sealed = bool(header[FRAME_FLAGS_AT] & FRAME_SEALED)
        return file.sealed

    def _reach(self, block: Block, lo: int, hi: int, end_max: int) -> tuple[int, int]:
        """The last index, and the offset after it, of a read from `lo` that ends by `end_max` if it can."""
        written = self.files[block.number].written
        last, end = lo, min(block.span_end(lo), written)
        while last < hi:
            end_next = block.span_end(last + 1)
            next_at = block.offset_of(last + 1)
            if end_next > end_max or next_at >= written or (block.number, next_at) in self._rewriting:
                break
            last, end = last + 1, min(end_next, written)
        return last, end

    def _checked(self, block: Block, data: bytes, start: int, index: int) -> Entry:
        at = block.offset_of(index) - start
        if verify(data, at):
            header = parse_header(data, at)
            if header.log_index == index and header.incarnation == self._incarnation:
                frame = data[at : at + header.length]
                if header.flags:
                    frame = self._opened(block, start + at, frame)
                return Entry(index=index, term=header.term, kind=header.kind, frame=frame)
        raise StoreCorrupt(f"{self.files[block.number].path}: entry {index} at byte {start + at} is damaged")

    def _opened(self, block: Block, offset: int, frame: bytes) -> bytes:
        """The frame as it was appended, from what stands in the file."""
        file = self.files[block.number]
        if self._cipher is None:
            raise StoreCorrupt(f"{file.path}: the frame at byte {offset} is encrypted, and there is no key")
        return self._cipher.open_frame(file.head.serial, offset, frame, what=str(file.path))

    def _descriptor(self, number: int) -> int:
        file = self.files[number]
        if file.fd is not None:
            return file.fd
        fd = self._open.get(number)
        if fd is None:
            fd = self._disk.open_file(file.path)
            self._open[number] = fd
            if len(self._open) > FILES_OPEN_MAX:
                self._disk.close_file(self._open.popitem(last=False)[1])
        self._open.move_to_end(number)
        return fd

    def forget(self, number: int) -> BlockFile:
        """Drop a block: its descriptor for reading is closed, its place in the table given up."""
        for key in [key for key in self._rewriting if key[0] == number]:
            del self._rewriting[key]
        fd = self._open.pop(number, None)
        if fd is not None:
            self._disk.close_file(fd)
        return self.files.pop(number)

    def close(self) -> None:
        """Close every descriptor."""
        for fd in self._open.values():
            self._disk.close_file(fd)
        self._open.clear()
        for file in self.files.values():
            if file.fd is not None:
                self._disk.close_file(file.fd)
                file.fd = None
        self._unwritten.clear()
