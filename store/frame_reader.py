"""Reads frames of one log from wherever they are: waiting to be written, in the cache, or in a block's file.

A frame that comes from a file is verified before anyone sees it: its checksum, and that it is the entry which the
block's table has at that place.
"""

import errno
import logging
from typing import Final

from jetraft.store._frame import make_mark, parse_header, verify
from jetraft.store._thin import expand, thin_like
from jetraft.store.backlog import BlockFile, Rewriting
from jetraft.store.block import Block, entry_of
from jetraft.store.block_cache import BlockCache
from jetraft.store.block_proofs import untagged
from jetraft.store.cipher import SEAL_BYTES, GroupCipher
from jetraft.store.compression import pack_like, unpack
from jetraft.store.format import (
    FRAME_FLAGS_AT,
    FRAME_HEADER_BYTES,
    FRAME_KIND_AT,
    FRAME_PACKED,
    FRAME_SEALED,
    FRAME_THIN,
    MARK_BYTES,
    Kind,
)
from jetraft.store.io import Disk
from jetraft.store.port import Entry, StoreCorrupt

log = logging.getLogger(__name__)

CACHED_KINDS: Final = frozenset({Kind.MESSAGES, Kind.CONSUMER_OP, Kind.META})  # others are few, and read once or twice
FILES_OPEN_MAX: Final = 8  # per log, for reads of blocks that no longer grow


class FrameReader:
    """The frames of one log by block and offset."""

    __slots__ = ("_cipher", "_disk", "_incarnation", "_log", "_open", "_rewriting", "_unwritten", "cache", "files")

    def __init__(self, disk: Disk, cache: BlockCache, incarnation: int, cipher: GroupCipher | None = None) -> None:
        self._disk = disk
        self.cache = cache
        self._log = cache.register_log()
        self._incarnation = incarnation
        self._cipher = cipher
        self._unwritten: dict[tuple[int, int], bytes] = {}  # (block, offset) -> frame that no file has yet
        self._rewriting: dict[tuple[int, int], bytes] = {}  # frames that are being overwritten by these
        self._open: dict[int, int] = {}  # block -> descriptor, least recently used first
        self.files: dict[int, BlockFile] = {}  # by block number

    def hold(self, block: Block, offset: int, frame: bytes) -> None:
        """Keep a frame that is about to be written."""
        self._unwritten[block.number, offset] = frame
        if frame[FRAME_KIND_AT] in CACHED_KINDS:
            self.cache.put((self._log, block.number, offset), frame)

    def release(self, block: Block, offset: int) -> None:
        """Let go of a frame that is in its file now, or was cut."""
        self._unwritten.pop((block.number, offset), None)

    def rewriting(self, block: Block, offset: int, frame: bytes) -> Rewriting:
        """What to write in place of a frame; it is read from now on, until `rewritten` says that the file has it."""
        key = block.number, offset
        index = block.index_at(offset)
        assert index is not None
        number, kept = block.number_of(index), frame
        if block.indexes is not None:
            kept = self._kept_like(self._kept(block, number), frame)
        file, place, is_sealed = self.files[block.number], block.place_of(number), self.is_sealed(block)
        item = Rewriting(file=file, frame=frame, place=place, kept=kept, is_sealed=is_sealed)
        self._rewriting[key] = frame
        if key in self._unwritten:
            self._unwritten[key] = frame
        self.cache.replace((self._log, *key), frame)
        return item

    def rewritten(self, key: tuple[int, int], frame: bytes) -> None:
        """The file has this frame at a place (block, offset)."""
        if self._rewriting.get(key) is frame:
            del self._rewriting[key]

    def held(self, block: Block, offset: int) -> bytes | None:
        """The frame, if it is in memory."""
        key = block.number, offset
        frame = self._rewriting.get(key) or self._unwritten.get(key)
        return self.cache.get((self._log, block.number, offset)) if frame is None else frame

    def frame(self, block: Block, offset: int) -> bytes:
        """The frame at a place. Raises KeyError when none starts there, StoreCorrupt when it is damaged."""
        frame = self.held(block, offset)
        if frame is not None:
            return frame
        index = block.index_at(offset)
        if index is None:
            raise KeyError((block.number, offset))
        frame = self.run(block, index, index, 0)[0].frame
        self.cache.put((self._log, block.number, offset), frame)
        return frame

    def run(self, block: Block, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Entries from `lo` to at most `hi` of one block, from its file by one read of about `bytes_max`; at least one.

        Frames that are not written yet come from memory.
        """
        key = block.number, block.offset_of(lo)
        waiting = self._rewriting.get(key) or self._unwritten.get(key)
        if waiting is not None:
            return [entry_of(waiting)]
        first = block.number_of(lo)
        start = block.place_of(first)
        last, end = self._reach(block, first, hi, start + bytes_max)
        data = self._read(block, end - start, start)
        return [self._checked(block, data, start, number) for number in range(first, last + 1)]

    def piece(self, block: Block, offset: int, size: int) -> bytes:
        """Bytes of a block for another member: without its tag, and open, with a mark where a frame's seal was."""
        data = self._plain_marks(block, offset, size)
        if self._cipher is None or not self.is_sealed(block):
            return data
        shown = bytearray(data)
        end = offset + len(data)
        for number in range(block.number_before(offset), len(block.offsets)):
            at, index = block.place_of(number), block.index_of(number)
            if at >= end:
                break
            frame = self._kept(block, number)
            mark = make_mark(incarnation=self._incarnation, offset=at + len(frame), next_index=index + 1)
            low, high = max(at, offset), min(at + len(frame) + SEAL_BYTES, end)
            if low < high:
                shown[low - offset : high - offset] = (frame + mark)[low - at : high - at]
        return bytes(shown)

    def _plain_marks(self, block: Block, offset: int, size: int) -> bytes:
        """Bytes of a block's file, without the tag that only this member is to know."""
        tag = self.files[block.number].head.tag
        if not tag:
            return self._read(block, size, offset)
        start = max(0, offset - MARK_BYTES + 1)  # marks that are cut by the borders are changed too
        data = self._read(block, offset - start + size + MARK_BYTES - 1, start)
        return untagged(data, start, self._incarnation, tag)[offset - start : offset - start + size]

    def kept(self, block: Block, number: int) -> bytes:
        """A frame, open: what is to be in its place, else as its file has it. Raises StoreCorrupt."""
        key = block.number, block.offsets[number]
        waiting = self._rewriting.get(key) or self._unwritten.get(key)
        return self._kept(block, number) if waiting is None else waiting

    def is_sealed(self, block: Block) -> bool:
        """Whether the frames of a block are encrypted: all of them are, or none."""
        file = self.files[block.number]
        if file.sealed is None:
            header = self._read(block, FRAME_HEADER_BYTES, block.place_of(0))
            file.sealed = bool(header[FRAME_FLAGS_AT] & FRAME_SEALED)
        return file.sealed

    def _reach(self, block: Block, first: int, hi: int, end_max: int) -> tuple[int, int]:
        """The last frame, and the place after it, of a read from `first` that ends by `end_max` if it can."""
        written = self.files[block.number].written
        last, end = first, min(block.place_end(first), written)
        while last + 1 < len(block.offsets) and block.index_of(last + 1) <= hi:
            end_next = block.place_end(last + 1)
            is_being_rewritten = (block.number, block.offsets[last + 1]) in self._rewriting
            if end_next > end_max or block.place_of(last + 1) >= written or is_being_rewritten:
                break
            last, end = last + 1, min(end_next, written)
        return last, end

    def _checked(self, block: Block, data: bytes, start: int, number: int) -> Entry:
        at, index = block.place_of(number) - start, block.index_of(number)
        if verify(data, at):
            header = parse_header(data, at)
            if header.log_index == index and header.incarnation == self._incarnation:
                frame = data[at : at + header.length]
                if header.flags:
                    frame = self._opened(block, start + at, frame)
                return Entry(index=index, term=header.term, kind=header.kind, frame=frame)
        raise StoreCorrupt(f"{self.files[block.number].path}: entry {index} at byte {start + at} is damaged")

    def _opened(self, block: Block, offset: int, frame: bytes) -> bytes:
        """The frame as it was appended, from what the file has; empty messages in place of those that are gone."""
        file = self.files[block.number]
        frame = self._unsealed(file, offset, frame)
        try:
            if frame[FRAME_FLAGS_AT] & FRAME_PACKED:
                frame = unpack(frame)
            return expand(frame) if frame[FRAME_FLAGS_AT] & FRAME_THIN else frame
        except ValueError as error:
            raise StoreCorrupt(f"{file.path}: the frame at byte {offset}: {error}") from error

    def _unsealed(self, file: BlockFile, offset: int, frame: bytes) -> bytes:
        if not frame[FRAME_FLAGS_AT] & FRAME_SEALED:
            return frame
        if self._cipher is None:
            raise StoreCorrupt(f"{file.path}: the frame at byte {offset} is encrypted, and there is no key")
        return self._cipher.open_frame(file.head.serial, offset, frame, what=str(file.path))

    def _kept_like(self, former: bytes, frame: bytes) -> bytes:
        """How the file keeps a frame that takes the place of another, in as many bytes."""
        inside = unpack(former) if former[FRAME_FLAGS_AT] & FRAME_PACKED else former
        kept = thin_like(inside, frame) if inside[FRAME_FLAGS_AT] & FRAME_THIN else frame
        if inside is former:
            return kept
        packed = pack_like(former, kept)
        if packed is None:
            log.warning("an erased frame does not fit in its place: it goes when its block is compacted again")
        return packed or former

    def _kept(self, block: Block, number: int) -> bytes:
        """A frame as its file has it, but open."""
        file, place = self.files[block.number], block.place_of(number)
        data = self._read(block, block.place_end(number) - place, place)
        if not verify(data):
            raise StoreCorrupt(f"{file.path}: entry {block.index_of(number)} at byte {place} is damaged")
        return self._unsealed(file, place, data[: parse_header(data).length])

    def _read(self, block: Block, size: int, offset: int) -> bytes:
        """Bytes of a block's file. What the device cannot read is damaged: raises StoreCorrupt."""
        try:
            return self._disk.read(self._descriptor(block.number), size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise StoreCorrupt(f"{self.files[block.number].path}: byte {offset} cannot be read: {error}") from error

    def _descriptor(self, number: int) -> int:
        file = self.files[number]
        if file.fd is not None:
            return file.fd
        fd = self._open.pop(number, None)
        if fd is None:
            fd = self._disk.open_file(file.path)
            if file.is_growing:
                file.fd = fd
                return fd
            if len(self._open) == FILES_OPEN_MAX:
                self._disk.close_file(self._open.pop(next(iter(self._open))))
        self._open[number] = fd
        return fd

    def reload(self, number: int, written: int) -> None:
        """Another file has taken the place of a block's, with so many bytes."""
        file = self.files[number]
        file.written, file.sealed = written, self._cipher is not None
        fd = self._open.pop(number, None)
        if fd is not None:
            self._disk.close_file(fd)

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
